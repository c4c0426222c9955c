"""The jobs of the benchmark on Quix Streams, with exactly-once and otherwise default settings.

It runs in the environment that `quix.py` creates, without this project. Arguments: job (`forward`
or
`count`), bootstrap servers, consumer group, source, sink, state folder. It ends on SIGTERM.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application


def count(_value: bytes, state: Any) -> str:
    """Return how many records this key has had so far."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    return str(number)


def main() -> None:
    """Run one job until it is stopped."""
    job, servers, group, source, sink, state_dir = sys.argv[1:]
    application = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=state_dir,
    )
    stream = application.dataframe(application.topic(source, value_deserializer="bytes"))
    if job == "forward":
        target = application.topic(sink, value_serializer="bytes")
    elif job == "count":
        stream = stream.apply(count, stateful=True)
        target = application.topic(sink, value_serializer="str")
    else:
        sys.exit(f"no such job: {job}")
    stream.to_topic(target)
    application.run()


if __name__ == "__main__":
    main()

"""The example that writes the records of the first tutorial."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import Producer

produce: Any = import_module("examples.produce")
"""Like all that users copy, it has no types."""


def test_records_that_kafka_does_not_take_end_it_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the JobManager has created the topic, this was a SystemError of the callback."""

    def impatient(settings: dict[str, Any]) -> Producer:
        logged = {"message.timeout.ms": 50, "log_level": 0}
        return Producer({**settings, **logged, "bootstrap.servers": "127.0.0.1:1"})

    monkeypatch.setattr(produce, "Producer", impatient)
    with pytest.raises(SystemExit, match=r"does not take the records: .*Is the JobManager running"):
        produce.main()

"""Windows and a join after a repartition topic, for a job whose number of tasks changes."""

from __future__ import annotations

from kafka_pipeline import StreamsBuilder, serdes, windows
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.stores import Windowed

WINDOW_MS = 1000
STEP_MS = 50
"""How much later the next number of a key is."""
GRACE_MS = 600_000


def build() -> Topology:
    """Count numbers in windows, on update and on close, and join each even number with the next."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    numbers = (
        builder.stream("source", name="Numbers")
        .map_values(int, value_serde=serdes.int64)
        .repartition(name="Spread", value_serde=serdes.int64)
    )
    kind = windows.tumbling(WINDOW_MS, grace_ms=GRACE_MS)
    grouped = numbers.group_by_key()
    counted = grouped.windowed_by(kind).count(name="Counted")
    counted.to_stream().map(lambda key, value: shown(b"count", key, value)).to("results")
    closed = grouped.windowed_by(kind, emit="on_close").count(name="Closed")
    closed.to_stream().map(lambda key, value: shown(b"closed", key, value)).to("results")
    even = numbers.filter(lambda key, number: number % 2 == 0)
    odd = numbers.filter(lambda key, number: number % 2 == 1)
    even.join(
        odd,
        lambda left, right: b"join %d %d" % (left, right),
        windows.join(before_ms=0, after_ms=STEP_MS, grace_ms=GRACE_MS),
        name="Joined",
        value_serde=serdes.bytes,
    ).to("results")
    return builder.build()


def shown(what: bytes, windowed: Windowed[bytes], count: int) -> tuple[bytes, bytes]:
    """Return a result of a window."""
    return windowed.key, b"%s %d %d" % (what, windowed.window.start, count)


def expected(start_ms: int, rounds: int, last_ms: int) -> list[bytes]:
    """Return the results of a key in order of what they are; its last number is at `last_ms`."""
    per_window = WINDOW_MS // STEP_MS
    sizes = {
        start_ms + number * STEP_MS: min(per_window, rounds - number)
        for number in range(0, rounds, per_window)
    }
    last = {last_ms // WINDOW_MS * WINDOW_MS: 1}
    counts = [
        b"count %d %d" % (start, n)
        for start, size in (sizes | last).items()
        for n in range(1, size + 1)
    ]
    joins = [b"join %d %d" % (n, n + 1) for n in range(0, rounds - 1, 2)]
    return sorted([*counts, *joins, *(b"closed %d %d" % each for each in sizes.items())])

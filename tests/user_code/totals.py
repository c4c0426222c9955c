"""Windows before and after a repartition topic, for a job whose event time a record spoils."""

from __future__ import annotations

from kafka_pipeline import StreamsBuilder, serdes, windows
from kafka_pipeline.streams.engine.topology import Topology

WINDOW_MS = 60_000


def build() -> Topology:
    """Count records of each key and window, and the updates of these counts of all keys."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    kind = windows.tumbling(WINDOW_MS, grace_ms=0)
    records = builder.stream("source", name="Records")
    counted = records.group_by_key().windowed_by(kind).count(name="Counted")
    updates = counted.to_stream().map(lambda key, count: (b"all", b"%d" % count))
    totals = updates.group_by_key(name="ByAll").windowed_by(kind).count(name="Totals")
    totals.to_stream().map(
        lambda key, count: (key.key, b"%d %d" % (key.window.start, count)),
        value_serde=serdes.bytes,
    ).to("sink")
    return builder.build()

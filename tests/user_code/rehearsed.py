"""A topology whose results depend on its config, for rehearsals of a change."""

from __future__ import annotations

from kafka_pipeline import StreamsBuilder, serdes
from kafka_pipeline.streams.engine.topology import Topology


def build(price: int) -> Topology:
    """Count the records of each key, and send the price of as many as JSON."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.bytes)
    counted = builder.stream("source", name="Records").group_by_key().count(name="Counted")
    counted.to_stream().map_values(
        lambda count: {"count": count, "total": count * price}, value_serde=serdes.json
    ).to("prices")
    return builder.build()

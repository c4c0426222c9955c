"""Runs topologies of the DSL on records given as data, for the tests next to this file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kafka_pipeline import Serde, StreamsBuilder, Topology, serdes
from kafka_pipeline.testing import TopologyTestDriver

Input = tuple[str, Any, Any, int]
"""Topic, key, value, timestamp."""

Output = tuple[Any, Any, int]
"""Key, value, timestamp."""


def builder(**settings: Any) -> StreamsBuilder:
    """Return a builder of strings with generated names."""
    given = {"key_serde": serdes.string, "value_serde": serdes.string}
    return StreamsBuilder(**{"allow_generated_names": True, **given, **settings})


def named() -> StreamsBuilder:
    """Return a builder of strings, where steps need names."""
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)


def of_json() -> StreamsBuilder:
    """Return a builder of JSON values."""
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)


def names(topology: Topology) -> tuple[list[str], list[str]]:
    """Return the names of the stores, and of the internal topics."""
    return (
        [store.name for store in topology.stores],
        [topic.name for topic in topology.internal_topics],
    )


def pipe(
    driver: TopologyTestDriver,
    inputs: Iterable[Input],
    key_serde: Serde[Any] = serdes.string,
    value_serde: Serde[Any] = serdes.string,
) -> None:
    """Write records one by one."""
    for topic, key, value, timestamp in inputs:
        writer = driver.create_input_topic(topic, key_serde, value_serde)
        writer.pipe_input(key, value, timestamp=timestamp)


def outputs(
    driver: TopologyTestDriver,
    topic: str = "out",
    key_serde: Serde[Any] = serdes.string,
    value_serde: Serde[Any] = serdes.string,
) -> list[Output]:
    """Return what was written to a topic since the last call."""
    reader = driver.create_output_topic(topic, key_serde, value_serde)
    return [(record.key, record.value, record.timestamp) for record in reader.read_records()]


def run(
    built: StreamsBuilder,
    inputs: Sequence[Input],
    key_serde: Serde[Any] = serdes.string,
    value_serde: Serde[Any] = serdes.string,
    input_serde: Serde[Any] = serdes.string,
) -> list[Output]:
    """Return what a topology writes to the topic `out`; the serdes are those of that topic."""
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs, value_serde=input_serde)
        return outputs(driver, "out", key_serde, value_serde)

"""The project whose types mypy checks also runs."""

from __future__ import annotations

from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.user_code.typed import nodes, typed


def test_classes_with_and_without_types_run() -> None:
    with TopologyTestDriver(nodes()) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.int64)
        topic.pipe_input("a", 3)
        topic.pipe_input("a", 5)
        out = driver.create_output_topic("out", serdes.string, serdes.float64)
        assert out.read_key_values() == [("a", 3.0), ("a", 2.5)]


def test_all_that_is_typed_makes_a_topology() -> None:
    assert "Everywhere" in typed().build().describe()

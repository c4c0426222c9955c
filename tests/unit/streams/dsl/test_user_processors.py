"""Processors of the user's within the DSL (KIP-820)."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline import Processor, Record, StreamsError, serdes, stores
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs
from tests.unit.streams.dsl.running import builder, names, outputs, run

STORE = stores.key_value("Seen", serdes.string, serdes.string)


# Processors of the user's


class Seen(Processor):
    """Forwards a value if the key had another one before, and keeps it."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = context.get_state_store("Seen", stores.KeyValueStore[str, str])

    def process(self, record: Record) -> None:
        if self.seen.put_if_absent(record.key, record.value) is None:
            self.context.forward(record)


@pytest.mark.parametrize("by_name", [True, False])
def test_processors_use_stores(by_name: bool) -> None:
    """KStreamImplTest.shouldProcessWithOldProcessorAndState, shouldBindStateWithOldProcessor"""
    built = builder()
    if by_name:
        built.add_state_store(STORE)
    built.stream("in").process(Seen, stores=["Seen" if by_name else STORE]).to("out")
    assert run(built, inputs("A:1@1 A:2@2 B:3@3")) == [("A", "1", 1), ("B", "3", 3)]


class WithPlace(Processor):
    """Puts the place of each record into its value."""

    def process(self, record: Record) -> None:
        context = self.context
        self.context.forward(record.with_value(f"{context.topic} {context.offset}"))


def test_processors_know_the_place_of_each_record() -> None:
    """KStreamImplTest.shouldProcessValues"""
    built = builder()
    built.stream("in").filter(lambda k, v: v != "no").process_values(WithPlace).to("out")
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_batch([Record("A", "yes", 1), Record("A", "no", 2), Record("A", "yes", 3)])
        assert outputs(driver) == [("A", "in 0", 1), ("A", "in 2", 3)]


class OtherKey(Processor):
    """Forwards records under another key."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_key("other"))


def test_process_values_refuses_another_key() -> None:
    """KIP-820"""
    built = builder()
    built.stream("in").process_values(OtherKey, name="Odd").to("out")
    with pytest.raises(StreamsError, match='step "Odd": process_values forwards records with the'):
        run(built, inputs("A:1@1"))


def test_process_may_change_the_key() -> None:
    built = builder()
    changed = built.stream("in").process(OtherKey)
    changed.group_by_key(name="ByKey").count(name="Counts")
    assert names(built.build())[1] == ["ByKey-repartition"]

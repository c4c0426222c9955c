"""Topologies of users with a global store, and with a source that reads a pattern."""

from __future__ import annotations

import re

from kafka_pipeline import Processor, ProcessorContext, Record, TopologyBuilder, serdes, stores
from kafka_pipeline.common.pipelines.specs import OffsetReset

NAMES = stores.key_value("Names", serdes.string, serdes.string)


class Keep(Processor):
    """Keeps the last value of each key in the global store; refuses the value `bad`."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.names = context.get_state_store(NAMES.name)

    def process(self, record: Record) -> None:
        self.names.put(record.key, record.value)
        if record.value == "bad":
            raise ValueError("no name")


class Lookup(Processor):
    """Puts the name that the global store has for the value in its place; `?` without one."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.names = context.get_state_store(NAMES.name)

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(self.names.get(record.value) or "?"))


class Meddle(Lookup):
    """Tries to write the global store."""

    def process(self, record: Record) -> None:
        self.names.put(record.value, "mine")


def lookup(
    orders: str, names: str, named: str, meddles: bool = False, persistent: bool = True
) -> TopologyBuilder:
    """Return a topology that gives orders the names that a global store has."""
    builder = TopologyBuilder()
    builder.add_source("Orders", orders, value_serde=serdes.string)
    builder.add_processor("Namer", Meddle if meddles else Lookup, "Orders")
    builder.add_sink("Named", named, "Namer", value_serde=serdes.string)
    builder.add_global_store(
        stores.key_value("Names", serdes.string, serdes.string, persistent=persistent),
        "Name source",
        names,
        "Keeper",
        Keep,
        key_serde=serdes.string,
        value_serde=serdes.string,
    )
    return builder


def gather(
    pattern: str, gathered: str, ignore_case: bool = False, begins: OffsetReset = "earliest"
) -> TopologyBuilder:
    """Return a topology that copies all topics that match a pattern."""
    builder = TopologyBuilder()
    matching = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    builder.add_source("All", matching, auto_offset_reset=begins)
    builder.add_sink("Gathered", gathered, "All")
    return builder

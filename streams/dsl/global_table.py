"""Tables that every task holds in full."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Generic

from kafka_pipeline.streams.dsl.graph import Compiling, Graph, Operation, Step
from kafka_pipeline.streams.dsl.table_values import TableReader, TableValues, open_table_store
from kafka_pipeline.streams.processor import Processor, ProcessorContext
from kafka_pipeline.streams.record import Record
from kafka_pipeline.streams.stores import ValueAndTimestamp, timestamped_key_value
from kafka_pipeline.streams.timestamps import ExtractorFunction, TimestampExtractor
from kafka_pipeline.streams.type_variables import K, V


class GlobalTable(Generic[K, V]):
    """A table of which every task has all keys, for joins of streams by any key."""

    def __init__(self, graph: Graph, step: Step) -> None:
        """For the DSL itself; the store has the name of the step."""
        self.graph = graph
        self.step = step


@dataclass(frozen=True, slots=True)
class ReadGlobally(Operation):
    """Follows a topic with a store that every task can read."""

    verb = "global_table"

    topic: str
    timestamp_extractor: TimestampExtractor | ExtractorFunction

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the global store, and the nodes that fill it."""
        compiler.builder.add_global_store(
            timestamped_key_value(step.name, step.key_serde, step.value_serde),
            f"{step.name}-source",
            self.topic,
            step.name,
            partial(GlobalFiller, step.name),
            key_serde=step.key_serde,
            value_serde=step.value_serde,
            timestamp_extractor=self.timestamp_extractor,
        )


class GlobalFiller(Processor):
    """Puts the records of a topic into a global store."""

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        found = None if record.value is None else ValueAndTimestamp(record.value, record.timestamp)
        self._store.put(record.key, found)


@dataclass(frozen=True, slots=True)
class GlobalValues(TableValues):
    """The values of a global table, whose store every processor can read."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        return ()

    def open(self, context: ProcessorContext) -> TableReader:
        return open_table_store(context, self.store, "global_table")

"""Chains of steps that keep no state: how the parts of one become a processor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.engine.lazy_values import MakeColumn, ReadsLazily
from kafka_pipeline.streams.engine.nodes import NamedPart
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, LazyColumn, Record

Receiver = Callable[[Record], None]


Fields = Collection[tuple[str, ...]]
"""Fields of a value, each as the path of names that leads to it."""


class Part(NamedPart):
    """One step of a chain as it runs: record by record with `receive`, or by columns."""

    reads: Fields | None = None
    """The fields of the values that the part looks at; `None` if it may look at all of a value."""

    replaces_values = False
    """Whether the parts that follow get other values."""

    drops_by_fields = False
    """Whether the part drops records whose fields say so."""

    def __init__(self, name: str, function: Any) -> None:
        self.name = name
        self.function = function
        self.forward: Receiver = _nowhere
        """Takes the records of this part; set when the chain is put together."""

    def receive(self, record: Record) -> None:
        """Pass on what the function makes of a record."""
        raise NotImplementedError

    def columns(self, batch: Batch) -> Batch:
        """Return what the function makes of a batch."""
        raise NotImplementedError


def _nowhere(record: Record) -> None:
    pass


class Chain(ReadsLazily):
    """Runs the parts of a chain: each over the whole batch, or all of them for one record."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self._fields = _fields_read_first(parts)
        self.process_record = parts[0].receive  # type: ignore[method-assign]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        receivers = [*(part.receive for part in self.parts[1:]), context.forward]
        for part, receive in zip(self.parts, receivers, strict=True):
            part.forward = receive

    def lazy_reader(self, deserialize: Callable[[Any], Any]) -> MakeColumn | None:
        if not self._fields or deserialize is not serdes.json.deserialize:
            return None
        # Arrow takes a while to load and some memory, so only tasks with expressions load it.
        from kafka_pipeline.streams.dsl.json_columns import JsonReader

        return JsonReader(deserialize).column

    def process(self, batch: Batch) -> None:
        if self._fields and isinstance(batch.values, LazyColumn):
            batch.values.expect(self._fields)
        for part in self.parts:
            batch = part.columns(batch)
            if not len(batch):
                return
        self.context.forward(batch)

    def process_record(self, record: Record) -> None:
        self.parts[0].receive(record)


def _fields_read_first(parts: Iterable[Part]) -> Fields:
    """Return the fields that are read before anything looks at all of a value.

    There are none if all values are looked at in the end: reading fields first would only cost.
    """
    fields: set[tuple[str, ...]] = set()
    saves = False
    for part in parts:
        if part.reads is None:
            break
        fields.update(part.reads)
        saves = saves or part.drops_by_fields or part.replaces_values
        if part.replaces_values:
            break
    return fields if saves else ()

"""Bases of the engine's own processors, which take single records and batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any

from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.record import Batch, LazyColumn, Record, items_of


class EitherWay(BatchProcessor):
    """A processor with separate methods for batches and single records.

    Both have the same results. A batch of one record costs several times as much as the record.
    """

    @abstractmethod
    def process_record(self, record: Record) -> None:
        """Process one record."""

    def process_each(self, batch: Batch) -> None:
        """Process the records of a batch one by one."""
        self.context.task_time.each(batch, self.process_record)


class MeetingPoint(EitherWay):
    """A processor at which records of several sources meet, in their order.

    Several records of each source may go through the nodes as one batch. The engine calls `begin`
    ahead of these batches, and `end` after them; their `offsets` are then the places of their
    records among those of all sources. Without `begin`, a batch is processed at once.
    """

    def __init__(self) -> None:
        self._parts: list[Batch] | None = None

    def begin(self) -> None:
        """Keep the batches that follow until `end`, or `give_up`."""
        self._parts = []

    def give_up(self) -> None:
        """Forget the records that were kept."""
        self._parts = None

    def process(self, batch: Batch) -> None:
        """Process a batch, or keep it."""
        if self._parts is None:
            self.process_in_order(batch)
        else:
            self._parts.append(batch)

    def end(self) -> None:
        """Process the records that were kept."""
        parts, self._parts = self._parts, None
        if parts:
            self.process_in_order(in_order(parts))

    @abstractmethod
    def process_in_order(self, batch: Batch) -> None:
        """Process records in their order, with `offsets` that their results keep."""


def in_order(parts: Sequence[Batch]) -> Batch:
    """Return the records of batches as one batch, in the order of their places."""
    if len(parts) == 1:
        return parts[0]
    places = list(chain.from_iterable(part.offsets or () for part in parts))
    order = sorted(range(len(places)), key=places.__getitem__)

    def column(items: Iterable[Iterable[Any]]) -> list[Any]:
        return list(map(list(chain.from_iterable(items)).__getitem__, order))

    headers = clocks = None
    if any(part.headers is not None for part in parts):
        headers = column(part.headers or repeat(None, len(part)) for part in parts)
    if any(part.clocks is not None for part in parts):
        clocks = column(part.clocks or items_of(part.timestamps) for part in parts)
    return Batch(
        column(items_of(part.keys) for part in parts),
        column(items_of(part.values) for part in parts),
        column(items_of(part.timestamps) for part in parts),
        headers,
        [places[index] for index in order],
        clocks,
    )


MakeColumn = Callable[[Sequence[bytes | None]], LazyColumn]
"""Makes the values of a batch from their bytes."""


class ReadsLazily(EitherWay):
    """A processor that may take values as a `LazyColumn`, without an object for each value.

    It and all other receivers of such batches must read values through `items_of` only, so user
    processors cannot extend this class.
    """

    @abstractmethod
    def lazy_reader(self, deserialize: Callable[[Any], Any]) -> MakeColumn | None:
        """Return a maker of columns whose items equal those of `deserialize`, or `None`."""

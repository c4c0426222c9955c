"""Bases of the engine's own processors, which take single records and batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.record import Batch, LazyColumn, Record


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

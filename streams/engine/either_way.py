"""Processors that take records one by one and in batches, whichever there are."""

from __future__ import annotations

from abc import abstractmethod

from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.record import Batch, Record


class EitherWay(BatchProcessor):
    """A processor of the engine's own that has a way of its own for single records.

    Both ways do the same. A batch of one record costs several times as much as the record.
    """

    @abstractmethod
    def process_record(self, record: Record) -> None:
        """Process one record."""

    def process_each(self, batch: Batch) -> None:
        """Process the records of a batch one by one."""
        self.context.task_time.each(batch, self.process_record)

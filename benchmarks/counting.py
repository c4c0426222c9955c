"""User code for benchmarks: the work of `count`, written by hand, and code that takes its time."""

from __future__ import annotations

import time

from kafka_pipeline import Batch, BatchProcessor, Processor, ProcessorContext, Record


class Counting(Processor):
    """Counts the records of each key, one record at a time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._counts = context.get_state_store("Counts")

    def process(self, record: Record) -> None:
        count = (self._counts.get(record.key) or 0) + 1
        self._counts.put(record.key, count)
        self.context.forward(record.with_value(count))


class BatchCounting(BatchProcessor):
    """Counts the records of each key, one batch at a time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._counts = context.get_state_store("Counts")

    def process(self, batch: Batch) -> None:
        counts: dict[str, int] = {}
        values = []
        for key in batch.keys:
            count = counts.get(key)
            if count is None:
                count = self._counts.get(key) or 0
            counts[key] = count = count + 1
            values.append(count)
        self._counts.put_all(counts.items())
        self.context.forward(batch.with_values(values))


class Sleeping(Processor):
    """Sleeps for each record, and forwards nothing."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process(self, record: Record) -> None:
        time.sleep(self._seconds)


class Computing(Processor):
    """Computes for each record, and forwards nothing."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process(self, record: Record) -> None:
        end_s = time.thread_time() + self._seconds
        while time.thread_time() < end_s:
            pass

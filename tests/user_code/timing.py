"""Processors whose results show what time it is for their task."""

from __future__ import annotations

from zlib import crc32

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    TopologyBuilder,
)
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.timestamps import RecordView
from tests.user_code import folding

TICK_MS = 25
_GAP_MS = 7


def time_of(record: RecordView, partition_time: int) -> int:
    """Return a record's own timestamp, or, of every third one, a time after those before it."""
    value = record.value
    assert isinstance(value, bytes)
    return record.timestamp if crc32(value) % 3 else partition_time + _GAP_MS


def told(value: bytes, timestamp: int, stream_time: int) -> bytes:
    """Return what becomes of a value; raises `ValueError` for one that is not a number."""
    return b"%d at %d of %d" % (int(value), timestamp, stream_time)


def schedule_ticks(context: ProcessorContext) -> None:
    """Forward the stream time whenever another interval of it has passed."""

    def tick(time: int) -> None:
        folding.while_called()
        context.forward(Record(context.task_id.encode(), b"%d" % time, time))
        if time % 4:
            context.commit()

    context.schedule(TICK_MS, PunctuationType.STREAM_TIME, tick)


class Clock(Processor):
    """Forwards each value with its timestamp and the stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        schedule_ticks(context)

    def process(self, record: Record) -> None:
        folding.while_called()
        value = told(record.value, record.timestamp, self.context.stream_time)
        self.context.forward(record.with_value(value))


class WholeClock(BatchProcessor):
    """Does with batches what `Clock` does with records."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        schedule_ticks(context)

    def process(self, batch: Batch) -> None:
        folding.while_called()
        stream_time, values = self.context.stream_time, []
        for value, timestamp in zip(batch.values, batch.timestamps, strict=True):
            stream_time = max(stream_time, timestamp)
            values.append(told(value, timestamp, stream_time))
        self.context.forward(batch.with_values(values))


def timed(topic: str, is_whole: bool) -> TopologyBuilder:
    """Return a clock behind a source with an extractor."""
    return _behind_a_source(topic, WholeClock if is_whole else Clock)


def asked_and_timed(topic: str) -> TopologyBuilder:
    """Return a `Clock` behind an `Asker`."""
    return _behind_a_source(topic, folding.Asker, Clock)


def _behind_a_source(topic: str, *suppliers: Supplier) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.add_source("Source", topic, timestamp_extractor=time_of)
    parent = "Source"
    for number, supplier in enumerate(suppliers):
        builder.add_processor(f"Step{number}", supplier, [parent])
        parent = f"Step{number}"
    builder.add_sink("Sink", "out", [parent])
    return builder

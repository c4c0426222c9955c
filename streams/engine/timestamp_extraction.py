"""Finds the timestamps of the records that a task takes in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_pipeline.common.errors import EngineError, PipelineError, as_exception
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.streams.engine.running import RunningSource
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.engine.time_limit import TimeLimit
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.timestamps import extract_column, stamped


@dataclass(frozen=True, slots=True)
class _View:
    """A record as a timestamp extractor sees it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: object
    value: object
    headers: KafkaHeaders


def _rejected(why: str, error: Exception) -> RecordRejectedError:
    """Return what rejects a record whose time the extractor does not find."""
    rejected = RecordRejectedError(why)
    rejected.__cause__ = error.__cause__ if isinstance(error.__cause__, Exception) else error
    return rejected


def timed(
    batch: RecordBatch,
    source: RunningSource,
    time: TaskTime,
    limit: TimeLimit,
    *,
    with_values: bool,
) -> list[RecordBatch]:
    """Return the batch with extracted timestamps, split into single records if that fails.

    A record that cannot be read is rejected with the same error as where nothing asks for its time.
    A timestamp beyond the `limit` fails too. Records that the extractor drops are left out. Reasons
    quote records only `with_values`. Raises if the extractor loses what it needs.
    """
    partition = (batch.topic, batch.partition)
    unread: Exception | None = None

    def view(index: int) -> _View:
        nonlocal unread
        key, value = batch.keys[index], batch.values[index]
        try:
            key_read = None if key is None else source.read_key(key)
            value_read = None if value is None else source.read_value(value)
        except BaseException as raised:
            unread = as_exception(raised)
            raise
        return _View(
            batch.topic,
            batch.partition,
            batch.offsets[index],
            batch.timestamps[index],
            key_read,
            value_read,
            batch.headers[index] if batch.headers else None,
        )

    known_ms = time.taken_in(partition)
    try:
        extracted = extract_column(source.timestamp_extractor, batch, view, known_ms)
        if extracted.partition_time > limit.until_ms and not batch.error:
            limit.require_column("the record", extracted.timestamps)
    except (EngineError, PipelineError):
        raise
    except BaseException as raised:
        error = as_exception(raised)
        if len(batch) > 1:
            parts = (batch.part(index, index + 1) for index in range(len(batch)))
            return [
                found
                for part in parts
                for found in timed(part, source, time, limit, with_values=with_values)
            ]
        times = [max(known_ms, 0)]
        why = reason(error, with_values=with_values)
        rejected = error if error is unread else _rejected(why, error)
        return [replace(batch, timestamps=times, error=why, cause=rejected)]
    if not batch.error:
        time.take_in(partition, extracted.partition_time)
    return [stamped(batch, extracted)]

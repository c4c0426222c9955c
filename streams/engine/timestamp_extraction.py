"""Finds the timestamps of the records that a task takes in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.streams.engine.running import RunningSource
from kafka_pipeline.streams.engine.task_time import TaskTime
from kafka_pipeline.streams.engine.time_limit import TimeLimit
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.timestamps import extract_column, stamped

_UNREAD: Any = object()


class _View:
    """A record as a timestamp extractor sees it; key and value are deserialized if it asks."""

    __slots__ = ("_batch", "_index", "_key", "_readers", "_value")

    def __init__(self, batch: RecordBatch, readers: _Readers, index: int) -> None:
        self._batch = batch
        self._readers = readers
        self._index = index
        self._key = self._value = _UNREAD

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def partition(self) -> int:
        return self._batch.partition

    @property
    def offset(self) -> int:
        return self._batch.offsets[self._index]

    @property
    def timestamp(self) -> int:
        return self._batch.timestamps[self._index]

    @property
    def key(self) -> Any:
        if self._key is _UNREAD:
            readers = self._readers
            self._key = readers.read(readers.read_key, self._batch.keys[self._index])
        return self._key

    @property
    def value(self) -> Any:
        if self._value is _UNREAD:
            readers = self._readers
            self._value = readers.read(readers.read_value, self._batch.values[self._index])
        return self._value

    @property
    def headers(self) -> KafkaHeaders:
        headers = self._batch.headers
        return headers[self._index] if headers else None


class _Readers:
    """Reads keys and values for the views of a batch."""

    def __init__(self, source: RunningSource) -> None:
        self.read_key = source.read_key
        self.read_value = source.read_value
        self.error: Exception | None = None
        """The last error of reading."""

    def read(self, deserialize: Callable[[Any], Any], data: bytes | None) -> Any:
        """Return the key or value, `None` for none; raises what `deserialize` raises."""
        if data is None:
            return None
        try:
            return deserialize(data)
        except BaseException as raised:
            self.error = as_exception(raised)
            raise


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

    A record that the extractor cannot read is rejected with the same error as where nothing asks
    for its time. A timestamp beyond the `limit` fails too. Records that the extractor drops are
    left out. Reasons quote records only `with_values`. Raises if the extractor loses what it needs.
    """
    partition = (batch.topic, batch.partition)
    readers = _Readers(source)
    view = partial(_View, batch, readers)
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
        unread = readers.error
        if unread is not None and (error is unread or error.__cause__ is unread):
            error = unread
        why = reason(error, with_values=with_values)
        rejected = error if error is unread else _rejected(why, error)
        return [replace(batch, timestamps=times, error=why, cause=rejected)]
    if not batch.error:
        time.take_in(partition, extracted.partition_time)
    return [stamped(batch, extracted)]

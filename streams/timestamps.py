"""The time of a record: where it comes from, and what happens if it is invalid.

Timestamps are milliseconds since the epoch, 0 to 2**63 - 1. An extractor that returns a negative
timestamp drops the record. The partition time is the largest timestamp of the earlier records of
the partition, -1 if there is none.

    record_timestamp                          # set by the producer or broker; the default
    FieldTimestampExtractor("at", unit="s")   # value["at"], in seconds
    FieldTimestampExtractor("meta.at", format="yyyy-MM-dd HH:mm:ss", zone="Europe/Berlin")
    as_extractor(lambda record, partition_time: record.value.at)
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import structlog

from kafka_pipeline.common.clock import ms_of, wall_clock_ms
from kafka_pipeline.common.code.error_words import described
from kafka_pipeline.common.code.escapes import as_exception
from kafka_pipeline.common.errors import EngineError, PipelineError
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.streams.errors import InvalidArgumentError, StreamsError
from kafka_pipeline.streams.time_patterns import TimePattern

UNKNOWN_TIME = -1
INVALID_TIMESTAMP = "invalid timestamp"
"""The reason under which records without a valid timestamp are counted as dropped."""

logger = structlog.get_logger()

_MAX_TIME = 2**63 - 1
_MISSING: Any = object()


class RecordView(Protocol):
    """A record as an extractor sees it; key and value are deserialized when they are asked for.

    `timestamp` was set by the producer or the broker; it is negative if there is none.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> KafkaHeaders: ...


@runtime_checkable
class TimestampExtractor(Protocol):
    """Finds the time of a record."""

    def extract(self, record: RecordView, partition_time: int) -> int:
        """Return the record's timestamp; a negative one drops the record.

        If this raises, the record is rejected, and `on_error` decides about it.
        """


ExtractorFunction = Callable[[RecordView, int], int]


@dataclass(frozen=True, slots=True)
class _FunctionExtractor:
    extract: ExtractorFunction


class RecordTimestampExtractor(ABC):
    """Takes the timestamp in the topic; a subclass says what to do if it is invalid."""

    __slots__ = ()

    def extract(self, record: RecordView, partition_time: int) -> int:
        """Return the record's own timestamp or, if that is negative, what `on_invalid` says."""
        timestamp = record.timestamp
        return timestamp if timestamp >= 0 else self.on_invalid(record, partition_time)

    @abstractmethod
    def on_invalid(self, record: RecordView, partition_time: int) -> int:
        """Return a timestamp for a record that has none, negative to drop it, or raise."""


class FailOnInvalidTimestamp(RecordTimestampExtractor):
    """Takes the timestamp in the topic, and rejects the record if it is invalid; the default."""

    __slots__ = ()

    def on_invalid(self, record: RecordView, partition_time: int) -> int:
        """Raise `StreamsError`."""
        raise StreamsError(
            "the record has no valid timestamp: use another timestamp extractor to read it"
        )


class LogAndSkipOnInvalidTimestamp(RecordTimestampExtractor):
    """Takes the timestamp in the topic; drops the record with a warning if it is invalid.

    Warns of the 1st, 2nd, 4th, 8th … such record of a topic, so that they do not fill the log.
    """

    __slots__ = ("_skipped",)

    def __init__(self) -> None:
        self._skipped = Counter[str]()

    def on_invalid(self, record: RecordView, partition_time: int) -> int:
        """Log where the record is, and return a negative number."""
        self._skipped[record.topic] += 1
        total = self._skipped[record.topic]
        if total & (total - 1) == 0:
            logger.warning(
                "record without a valid timestamp is skipped",
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                total=total,
            )
        return UNKNOWN_TIME


class UsePartitionTimeOnInvalidTimestamp(RecordTimestampExtractor):
    """Takes the timestamp in the topic or, if it is invalid, the partition time."""

    __slots__ = ()

    def on_invalid(self, record: RecordView, partition_time: int) -> int:
        """Return the partition time; raise `StreamsError` while it is unknown."""
        if partition_time < 0:
            raise StreamsError("the record has no valid timestamp, and no record before it had one")
        return partition_time


record_timestamp: RecordTimestampExtractor = FailOnInvalidTimestamp()
"""The default extractor."""


@dataclass(frozen=True, slots=True)
class WallclockTimestampExtractor:
    """Takes the time at which the record is read, from `clock_ms`.

    Without `clock_ms`, it takes the wall clock of the task or, under a `TopologyTestDriver`, of the
    driver.
    """

    clock_ms: Callable[[], int] | None = None

    def extract(self, record: RecordView, partition_time: int) -> int:
        """Return the time of the clock."""
        return wall_clock_ms() if self.clock_ms is None else self.clock_ms()


@dataclass(frozen=True, slots=True)
class FieldTimestampExtractor:
    """Takes the time from a field of values that are dicts, such as those of the serde `json`.

    The units `ms`, `s` and `us` read numbers since the epoch: integers are rounded down to the
    millisecond, fractions to the nearest millisecond. `iso8601` reads strings such as
    `2026-11-21T07:13:01.5+01:00`; a string without an offset is UTC. With a `format`, in place of a
    unit, strings are read by this `TimePattern`, in the `zone` if they have no offset.
    A `datetime`, as Avro has for timestamps, is a time with any of them; without a zone, it is UTC.

    `meta.at` is the field `at` of the dict in `meta`, unless the value has a field of that name. A
    field that is missing, of another type, before 1970 or beyond 2**63 - 1 ms is invalid:
    `on_invalid` decides.
    """

    field: str
    unit: Literal["ms", "s", "us", "iso8601"] = "ms"
    on_invalid: RecordTimestampExtractor = record_timestamp
    format: str = ""
    zone: str = "UTC"
    _pattern: TimePattern | None = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.unit not in _READ:
            raise InvalidArgumentError(f'a unit is "ms", "s", "us" or "iso8601", not "{self.unit}"')
        if self.format and self.unit != "ms":
            raise InvalidArgumentError("give either a unit or a format, not both")
        if self.zone != "UTC" and not self.format:
            raise InvalidArgumentError("a zone is that of times with a format: give both")
        try:
            pattern = TimePattern(self.format, self.zone) if self.format else None
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        object.__setattr__(self, "_pattern", pattern)
        if not isinstance(self.on_invalid, RecordTimestampExtractor):
            what = self.on_invalid
            raise InvalidArgumentError(
                "on_invalid is an object such as LogAndSkipOnInvalidTimestamp(), "
                + (f"not the class {what.__name__}" if isinstance(what, type) else f"not {what!r}")
            )

    def extract(self, record: RecordView, partition_time: int) -> int:
        """Return the time in the field."""
        value = self.value_of(record)
        if isinstance(value, dict):
            timestamp = self._read(self._found(value))
            if 0 <= timestamp <= _MAX_TIME:
                return timestamp
        policy = self.on_invalid
        try:
            return policy.on_invalid(record, partition_time)
        except StreamsError as error:
            if type(policy) not in (FailOnInvalidTimestamp, UsePartitionTimeOnInvalidTimestamp):
                raise
            raise StreamsError(f"{self._problem(value)}: {error}") from None

    def value_of(self, record: RecordView) -> Any:
        """Return the value of a record, a dict if it has fields."""
        return record.value

    def _found(self, value: Mapping[str, Any]) -> Any:
        """Return what is in the field, `_MISSING` without one."""
        if self.field in value or "." not in self.field:
            return value.get(self.field, _MISSING)
        found: Any = value
        for name in self.field.split("."):
            found = found.get(name, _MISSING) if isinstance(found, dict) else _MISSING
        return found

    def _read(self, found: object) -> int:
        """Return the time that a field has; negative if it is not one."""
        if isinstance(found, datetime):
            return ms_of(found)
        if self._pattern is None:
            return _READ[self.unit](found)
        time = self._pattern.ms(found) if isinstance(found, str) else None
        return UNKNOWN_TIME if time is None else time

    def _problem(self, value: object) -> str:
        """Say which kind of fault this is: the same words for the same fault, without data."""
        if not isinstance(value, dict):
            return f'no field "{self.field}", as the value is a {type(value).__name__}'
        found = self._found(value)
        if found is _MISSING:
            return f'the field "{self.field}" is missing'
        kind = type(found).__name__
        is_text = bool(self.format) or self.unit == "iso8601"
        wanted = self.format or ("ISO 8601" if is_text else f"a number of {self.unit}")
        is_time = isinstance(found, datetime)
        if is_time or (isinstance(found, str) is is_text and not isinstance(found, bool | None)):
            return (
                f'the field "{self.field}" is not {wanted}, or before 1970 or beyond 2**63 - 1 ms'
            )
        return f'the field "{self.field}" is a {kind}, not {wanted}'


def _number(value: object, multiplier: int, divisor: int = 1) -> int:
    if isinstance(value, bool):
        return UNKNOWN_TIME
    if isinstance(value, int):
        return value * multiplier // divisor
    if isinstance(value, Decimal):
        return round(value * multiplier / divisor) if 0 <= value <= _MAX_TIME else UNKNOWN_TIME
    if isinstance(value, float) and 0 <= value <= _MAX_TIME:
        return round(value * multiplier / divisor)
    return UNKNOWN_TIME


def _iso8601(value: object) -> int:
    if not isinstance(value, str):
        return UNKNOWN_TIME
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return UNKNOWN_TIME
    return ms_of(moment)


_READ: dict[str, Callable[[object], int]] = {
    "ms": lambda value: _number(value, 1),
    "s": lambda value: _number(value, 1000),
    "us": lambda value: _number(value, 1, 1000),
    "iso8601": _iso8601,
}


def as_extractor(extractor: TimestampExtractor | ExtractorFunction) -> TimestampExtractor:
    """Make an extractor from a function `(record, partition_time) -> int`.

    An extractor is returned as it is; anything else raises `TypeError`.
    """
    if isinstance(extractor, type):
        raise TypeError(
            f"the timestamp extractor {extractor.__name__} is a class: give an instance"
        )
    if isinstance(extractor, TimestampExtractor):
        return extractor
    if callable(extractor):
        return _FunctionExtractor(extractor)
    raise TypeError(
        "a timestamp extractor is a function or has a method extract, "
        f"not a {type(extractor).__name__}"
    )


def following(extractor: TimestampExtractor, clock_ms: Callable[[], int]) -> TimestampExtractor:
    """Return the extractor with `clock_ms` as its clock, if it follows the task's clock."""
    if isinstance(extractor, WallclockTimestampExtractor) and extractor.clock_ms is None:
        return replace(extractor, clock_ms=clock_ms)
    return extractor


class Extracted(NamedTuple):
    """The timestamps of a batch; those of records to be left out are negative.

    `dropped` has the indices of these records, ascending; the caller counts them as dropped, for
    the reason `INVALID_TIMESTAMP`. `partition_time` is the one to pass with the partition's next
    batch.
    """

    timestamps: Sequence[int]
    dropped: Sequence[int]
    partition_time: int


def extract_column(
    extractor: TimestampExtractor,
    batch: RecordBatch,
    view: Callable[[int], RecordView],
    partition_time: int,
) -> Extracted:
    """Return the timestamps of all records of a batch.

    `view(i)` makes the record at index i. If the extractor takes the timestamps in the topic and
    all are valid, `view` is not called, and the batch's own column is returned. Raises
    `StreamsError` if the extractor raises it, fails, or returns an invalid timestamp.
    """
    column = batch.timestamps
    if takes_the_topics(extractor) and min(column, default=0) >= 0:
        if column:
            partition_time = max(partition_time, batch.largest_timestamp(0, len(batch)))
        return Extracted(column, (), partition_time)
    timestamps: list[int] = []
    dropped: list[int] = []
    extract = extractor.extract
    try:
        for index in range(len(batch)):
            timestamp = extract(view(index), partition_time)
            if type(timestamp) is not int or timestamp > _MAX_TIME:
                raise StreamsError(
                    f"the timestamp extractor returned a {type(timestamp).__name__} that is not an "
                    "integer below 2**63"
                )
            timestamps.append(timestamp)
            if timestamp < 0:
                dropped.append(index)
            elif timestamp > partition_time:
                partition_time = timestamp
    except (StreamsError, EngineError, PipelineError):
        raise
    except BaseException as raised:
        error = as_exception(raised)
        failed = "the timestamp extractor failed"
        raise StreamsError(
            f"{failed}: {described(error, with_values=True)}",
            shown=f"{failed}: {described(error, with_values=False)}",
        ) from error
    return Extracted(timestamps, dropped, partition_time)


def stamped(batch: RecordBatch, extracted: Extracted) -> RecordBatch:
    """Return the batch with the extracted timestamps, without the records to be left out."""
    if extracted.timestamps is batch.timestamps:
        return batch
    if not extracted.dropped:
        return replace(batch, timestamps=extracted.timestamps)
    out = frozenset(extracted.dropped)
    kept = [index for index in range(len(batch)) if index not in out]
    return replace(batch, timestamps=extracted.timestamps).only(kept)


def takes_the_topics(extractor: TimestampExtractor) -> bool:
    """Whether an extractor takes the timestamps in the topic, without a call for each record."""
    return (
        isinstance(extractor, RecordTimestampExtractor)
        and type(extractor).extract is RecordTimestampExtractor.extract
    )

"""Timestamp extractors: the time of a record, and records without one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.streams.errors import InvalidArgumentError, StreamsError
from kafka_pipeline.streams.timestamps import (
    Extracted,
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    RecordTimestampExtractor,
    RecordView,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    as_extractor,
    extract_column,
    following,
    record_timestamp,
    stamped,
)

SKIP = LogAndSkipOnInvalidTimestamp()
USE_PARTITION_TIME = UsePartitionTimeOnInvalidTimestamp()
POLICIES = [record_timestamp, SKIP, USE_PARTITION_TIME]


@dataclass(frozen=True)
class Record:
    timestamp: int = -1
    value: Any = None
    offset: int = 5
    key: Any = None
    topic: str = "in"
    partition: int = 2
    headers: KafkaHeaders = None


def batch(timestamps: Sequence[int], headers: Sequence[KafkaHeaders] | None = None) -> RecordBatch:
    size = len(timestamps)
    values = [b"%d" % index for index in range(size)]
    return RecordBatch("in", 2, [None] * size, values, timestamps, range(size), headers)


def viewer(records: RecordBatch) -> Callable[[int], RecordView]:
    return lambda index: Record(records.timestamps[index], records.values[index], index)


def extract(
    extractor: TimestampExtractor, timestamps: Sequence[int], partition_time: int = -1
) -> Extracted:
    records = batch(timestamps)
    return extract_column(extractor, records, viewer(records), partition_time)


def never(index: int) -> RecordView:
    raise AssertionError("a record was looked at")


def failing(record: RecordView, partition_time: int) -> int:
    raise KeyError("secret")


# The timestamp of the topic


def test_default_is_to_fail_on_invalid_timestamps() -> None:
    assert isinstance(record_timestamp, FailOnInvalidTimestamp)


@pytest.mark.parametrize("extractor", POLICIES)
@pytest.mark.parametrize("timestamp", [0, 42])
def test_timestamp_of_the_topic_is_taken_if_valid(
    extractor: RecordTimestampExtractor, timestamp: int
) -> None:
    assert extractor.extract(Record(timestamp), 99) == timestamp


def test_invalid_timestamps_fail_with_the_same_words() -> None:
    for timestamp, offset in ((-1, 5), (-7, 6)):
        with pytest.raises(StreamsError) as caught:
            record_timestamp.extract(Record(timestamp, offset=offset), 42)
        assert str(caught.value) == (
            "the record has no valid timestamp: use another timestamp extractor to read it"
        )


@pytest.mark.parametrize(
    ("unit", "values", "fault"),
    [
        ("ms", [{}, {"other": 4711}], 'the field "at" is missing'),
        ("ms", [None], 'no field "at", as the value is a NoneType'),
        ("ms", [[4711]], 'no field "at", as the value is a list'),
        ("s", [{"at": "4711"}, {"at": "x"}], 'the field "at" is a str, not a number of s'),
        ("us", [{"at": None}], 'the field "at" is a NoneType, not a number of us'),
        ("ms", [{"at": True}], 'the field "at" is a bool, not a number of ms'),
        (
            "ms",
            [{"at": -1}, {"at": 2**63}, {"at": Decimal("1e30")}],
            'the field "at" is not a number of ms, or before 1970 or beyond 2**63 - 1 ms',
        ),
        ("iso8601", [{"at": 4711}], 'the field "at" is a int, not ISO 8601'),
        (
            "iso8601",
            [{"at": "4711 o'clock"}, {"at": "1969-01-01"}],
            'the field "at" is not ISO 8601, or before 1970 or beyond 2**63 - 1 ms',
        ),
    ],
)
@pytest.mark.parametrize("policy", [record_timestamp, USE_PARTITION_TIME])
def test_a_field_without_a_time_is_named_in_the_same_words_for_the_same_fault(
    unit: Any, values: Sequence[Any], fault: str, policy: RecordTimestampExtractor
) -> None:
    extractor = FieldTimestampExtractor("at", unit, policy)
    for offset, value in enumerate(values):
        with pytest.raises(StreamsError) as caught:
            extractor.extract(Record(timestamp=-1, value=value, offset=offset), -1)
        assert str(caught.value).startswith(f"{fault}: the record has no valid timestamp")


def test_invalid_timestamp_stays_negative_where_the_record_is_to_be_dropped() -> None:
    assert SKIP.extract(Record(-42), 42) < 0


def test_invalid_timestamp_becomes_the_partition_time() -> None:
    assert USE_PARTITION_TIME.extract(Record(-1), 42) == 42


def test_unknown_partition_time_is_no_timestamp() -> None:
    with pytest.raises(StreamsError, match="no record before it had one"):
        USE_PARTITION_TIME.extract(Record(-1), -1)


def test_wall_clock_is_asked_for_each_record() -> None:
    times = iter([10, 20])
    extractor = WallclockTimestampExtractor(lambda: next(times))
    assert [extractor.extract(Record(1), 42) for _ in range(2)] == [10, 20]


def test_a_wall_clock_of_its_own_stays_and_that_of_the_task_is_followed_without_one() -> None:
    own = WallclockTimestampExtractor(lambda: 3)
    assert following(own, lambda: 4) is own
    assert following(WallclockTimestampExtractor(), lambda: 4).extract(Record(1), 42) == 4
    assert following(SKIP, lambda: 4) is SKIP


def test_a_wall_clock_without_a_task_is_that_of_the_host() -> None:
    before = wall_clock_ms()
    assert before <= WallclockTimestampExtractor().extract(Record(1), 42) <= wall_clock_ms()


# The time of a field


@pytest.mark.parametrize(
    ("unit", "field", "timestamp"),
    [
        ("ms", 0, 0),
        ("ms", 1700000000123, 1700000000123),
        ("ms", 12.6, 13),
        ("ms", 2**63 - 1, 2**63 - 1),
        ("s", 1700000000, 1700000000000),
        ("s", 1700000000.123, 1700000000123),
        ("s", 1.001, 1001),
        ("s", Decimal("1.0015"), 1002),
        ("ms", Decimal("1E+3"), 1000),
        ("us", 1999, 1),
        ("us", 1700000000123456, 1700000000123),
        ("iso8601", "1970-01-01T00:00:00Z", 0),
        ("iso8601", "2023-11-14T22:13:20.1239Z", 1700000000123),
        ("iso8601", "2023-11-14T23:13:20+01:00", 1700000000000),
        ("iso8601", "2023-11-14T22:13:20", 1700000000000),
        ("iso8601", "2023-11-14", 1699920000000),
    ],
)
def test_field_is_read_in_its_unit(unit: Any, field: object, timestamp: int) -> None:
    extractor = FieldTimestampExtractor("at", unit)
    assert extractor.extract(Record(timestamp=7, value={"at": field}), -1) == timestamp


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("ms", None),
        ("ms", [1]),
        ("ms", {}),
        ("ms", {"at": None}),
        ("ms", {"at": "1700000000123"}),
        ("ms", {"at": True}),
        ("ms", {"at": -1}),
        ("ms", {"at": 2**63}),
        ("s", {"at": -0.0001}),
        ("s", {"at": math.nan}),
        ("s", {"at": math.inf}),
        ("s", {"at": 1e308}),
        ("us", {"at": -1}),
        ("iso8601", {"at": "yesterday"}),
        ("iso8601", {"at": 1700000000}),
        ("iso8601", {"at": "1969-12-31T23:59:59.999Z"}),
        ("iso8601", {"at": "0001-01-01T00:00:00+23:59"}),
        ("iso8601", {"at": "9999-12-31T23:59:59-23:59x"}),
    ],
)
def test_field_without_a_valid_time_is_left_to_the_policy(unit: Any, value: object) -> None:
    record = Record(timestamp=7, value=value)
    assert FieldTimestampExtractor("at", unit, USE_PARTITION_TIME).extract(record, 42) == 42
    assert FieldTimestampExtractor("at", unit, SKIP).extract(record, 42) < 0
    with pytest.raises(StreamsError, match="no valid timestamp"):
        FieldTimestampExtractor("at", unit).extract(record, 42)


@pytest.mark.parametrize("settings", [{}, {"unit": "iso8601"}, {"format": "yyyy"}])
@pytest.mark.parametrize(
    ("field", "timestamp"),
    [
        (datetime(2023, 11, 14, 22, 13, 20, 123999, tzinfo=UTC), 1700000000123),
        (datetime(2023, 11, 14, 23, 13, 20, tzinfo=timezone(timedelta(hours=1))), 1700000000000),
        (datetime(2023, 11, 14, 22, 13, 20), 1700000000000),
        (datetime(1969, 12, 31, tzinfo=UTC), 42),
    ],
)
def test_datetime_is_a_time_in_each_unit(settings: Any, field: datetime, timestamp: int) -> None:
    extractor = FieldTimestampExtractor("at", on_invalid=USE_PARTITION_TIME, **settings)
    assert extractor.extract(Record(timestamp=7, value={"at": field}), 42) == timestamp


def test_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match='not "min"'):
        FieldTimestampExtractor("at", "min")  # type: ignore[arg-type]


# Extractors of one's own


def test_a_function_is_an_extractor_too() -> None:
    extractor = as_extractor(lambda record, partition_time: record.offset + partition_time)
    assert extractor.extract(Record(offset=5), 100) == 105


def test_an_extractor_stays_itself() -> None:
    assert as_extractor(record_timestamp) is record_timestamp


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(TypeError, match="has a method extract, not a str"):
        as_extractor("at")  # type: ignore[arg-type]


def test_error_of_an_extractor_says_what_was_raised() -> None:
    with pytest.raises(StreamsError) as caught:
        extract(as_extractor(failing), [1])
    assert str(caught.value) == "the timestamp extractor failed: KeyError: 'secret'"
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("answer", "type_name"), [(1.5, "float"), (None, "None"), (2**63, "int"), (True, "bool")]
)
def test_extractor_that_returns_no_timestamp_is_refused(answer: Any, type_name: str) -> None:
    with pytest.raises(StreamsError, match=f"returned a {type_name}"):
        extract(as_extractor(lambda record, partition_time: answer), [1])


# A whole column


@pytest.mark.parametrize("extractor", POLICIES)
@pytest.mark.parametrize(
    ("timestamps", "partition_time"), [([], 4), ([0], 4), ([3, 9, 5], 9), ([3, 1], 4)]
)
def test_valid_timestamps_of_the_topic_are_the_column_itself(
    extractor: TimestampExtractor, timestamps: list[int], partition_time: int
) -> None:
    extracted = extract_column(extractor, batch(timestamps), never, 4)
    assert extracted.timestamps is timestamps
    assert extracted == (timestamps, (), partition_time)


def test_one_invalid_timestamp_fails_the_column() -> None:
    with pytest.raises(StreamsError, match="has no valid timestamp"):
        extract(record_timestamp, [3, -1, 5])


def test_records_to_be_dropped_are_listed() -> None:
    timestamps, dropped, partition_time = extract(SKIP, [-1, 3, -5, 2])
    assert timestamps[1::2] == [3, 2]
    assert dropped == [0, 2]
    assert partition_time == 3


def test_partition_time_grows_from_record_to_record() -> None:
    assert extract(USE_PARTITION_TIME, [-1, 9, -1, 5, -1], 4) == ([4, 9, 9, 5, 9], [], 9)


def test_extractor_gets_the_largest_timestamp_of_the_records_before() -> None:
    seen: list[int] = []

    def by_offset(record: RecordView, partition_time: int) -> int:
        seen.append(partition_time)
        return [2, 1, 3, -1, 4][record.offset]

    extracted = extract(as_extractor(by_offset), [0] * 5)
    assert seen == [-1, 2, 2, 3, 3]
    assert extracted == ([2, 1, 3, -1, 4], [3], 4)


def test_a_subclass_with_a_time_of_its_own_is_asked_for_each_record() -> None:
    class Later(LogAndSkipOnInvalidTimestamp):
        def extract(self, record: RecordView, partition_time: int) -> int:
            return record.timestamp + 1

    assert extract(Later(), [1, 2]).timestamps == [2, 3]


# The batch with its timestamps


def test_batch_stays_itself_where_its_timestamps_hold() -> None:
    records = batch([1, 2])
    assert stamped(records, extract_column(SKIP, records, never, -1)) is records


@pytest.mark.parametrize("headers", [None, [[("a", b"0")], None, [("c", b"2")]]])
def test_stamped_batch_has_no_dropped_records(headers: Sequence[KafkaHeaders] | None) -> None:
    records = batch([5, -1, 7], headers)
    result = stamped(records, extract_column(SKIP, records, viewer(records), -1))
    assert result == RecordBatch(
        "in",
        2,
        [None, None],
        [b"0", b"2"],
        [5, 7],
        [0, 2],
        None if headers is None else [headers[0], headers[2]],
    )


@pytest.mark.parametrize(
    ("value", "timestamp"),
    [
        ({"meta": {"at": 7}}, 7),
        ({"meta.at": 8, "meta": {"at": 7}}, 8),
    ],
)
def test_a_field_may_be_in_a_dict(value: dict[str, Any], timestamp: int) -> None:
    assert FieldTimestampExtractor("meta.at").extract(Record(value=value), -1) == timestamp


@pytest.mark.parametrize("value", [{"meta": {}}, {"meta": 3}, {}, {"meta": {"at.b": 3}}])
def test_a_field_that_is_not_in_the_dict_is_invalid(value: dict[str, Any]) -> None:
    with pytest.raises(StreamsError, match=r'the field "meta.at" is missing'):
        FieldTimestampExtractor("meta.at").extract(Record(value=value), -1)


def test_text_is_read_by_a_format_in_its_zone() -> None:
    extractor = FieldTimestampExtractor(
        "at", format="yyyy-MM-dd HH:mm:ss", zone="Europe/Berlin", on_invalid=SKIP
    )
    assert extractor.extract(Record(value={"at": "1970-01-01 01:00:02"}), -1) == 2000
    assert extractor.extract(Record(value={"at": "1970-01-01T01:00:02"}), -1) < 0
    assert extractor.extract(Record(value={"at": 2000}), -1) < 0


def test_a_time_of_another_format_names_the_format() -> None:
    extractor = FieldTimestampExtractor("at", format="yyyy-MM-dd")
    with pytest.raises(StreamsError, match='the field "at" is not yyyy-MM-dd, or before 1970'):
        extractor.extract(Record(value={"at": "2026"}), -1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"unit": "s", "format": "yyyy"}, "give either a unit or a format"),
        ({"zone": "Europe/Berlin"}, "a zone is that of times with a format"),
        ({"format": "yyyy-QQ"}, "the pattern yyyy-QQ has QQ: use"),
    ],
)
def test_a_format_that_is_not_possible_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        FieldTimestampExtractor("at", **given)

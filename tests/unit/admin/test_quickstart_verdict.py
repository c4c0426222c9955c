"""The quickstart's judge: it must notice every way in which results can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_pipeline.admin.quickstart.outage import Outage, measure, seconds_away
from kafka_pipeline.admin.quickstart.run import REASON_HEADER, OutRecord, expect, judge

FLIGHTS = [
    (b"ATL", b"11"),
    (b"BOS", None),
    (b"BOS", b"-3"),
    (b"ATL", b""),
    (b"ATL", b"0"),
    (b"BOS", b"7"),
    (b"ATL", b"5"),
    (b"BUR", b""),
    (b"ATL", b""),
]

Records = list[OutRecord]


def outputs() -> Records:
    counts = [(0, b"ATL", b"1"), (0, b"ATL", b"2"), (1, b"BOS", b"1"), (0, b"ATL", b"3")]
    return [OutRecord(*record) for record in [*counts, (1, b"BOS", b"2")]]


def dead_letters() -> Records:
    reason = ((REASON_HEADER, b"the value is empty"),)
    return [OutRecord(0, key, b"", reason) for key in (b"ATL", b"BUR", b"ATL")]


def test_the_right_results_are_right() -> None:
    assert judge(FLIGHTS, outputs(), dead_letters()) == []


def test_the_answer_comes_from_the_input() -> None:
    expected = expect(FLIGHTS)
    assert expected.counts == {b"ATL": 3, b"BOS": 2}
    assert expected.dead_letters == {b"ATL": 2, b"BUR": 1}


def _swap(records: Records) -> None:
    records[0], records[1] = records[1], records[0]


def _append(partition: int, key: bytes | None, value: bytes | None) -> Callable[[Records], None]:
    return lambda records: records.append(OutRecord(partition, key, value))


def _change(index: int, **change: object) -> Callable[[Records], None]:
    def spoil(records: Records) -> None:
        records[index] = replace(records[index], **change)  # type: ignore[arg-type]

    return spoil


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda records: records.pop(0), "outputs missing: 1 ((b'ATL', b'1'))"),
        (lambda records: records.pop(), "outputs missing: 1 ((b'BOS', b'2'))"),
        (
            lambda records: records.clear(),
            "outputs missing: 5 ((b'ATL', b'1'); (b'ATL', b'2'); (b'ATL', b'3'))",
        ),
        (_append(0, b"ATL", b"3"), "outputs too often: 1 ((b'ATL', b'3'))"),
        (_append(0, b"ATL", b"1"), "outputs too often: 1 ((b'ATL', b'1'))"),
        (_swap, """outputs out of order: ["b'ATL'"]"""),
        (_append(0, b"ATL", b"4"), "outputs not expected: 1 ((b'ATL', b'4'))"),
        (_append(0, b"ATL", b"0"), "outputs not expected: 1 ((b'ATL', b'0'))"),
        (_append(0, b"ATL", b"01"), "outputs not expected: 1 ((b'ATL', b'01'))"),
        (_append(0, b"ATL", b""), "outputs not expected: 1 ((b'ATL', b''))"),
        (_append(0, b"ATL", None), "outputs not expected: 1 ((b'ATL', None))"),
        (_append(0, b"JFK", b"1"), "outputs not expected: 1 ((b'JFK', b'1'))"),
        (_append(0, b"BUR", b"1"), "outputs not expected: 1 ((b'BUR', b'1'))"),
        (_append(0, None, b"1"), "outputs not expected: 1 ((None, b'1'))"),
        (_change(1, partition=1), """outputs in two partitions: ["b'ATL'"]"""),
        (_change(0, value=b"2"), "outputs too often: 1 ((b'ATL', b'2'))"),
    ],
)
def test_wrong_outputs_are_noticed(spoil: Callable[[Records], None], problem: str) -> None:
    records = outputs()
    spoil(records)
    assert problem in judge(FLIGHTS, records, dead_letters())


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda records: records.pop(1), "dead letters missing: 1 ((b'BUR', b'', True))"),
        (
            lambda records: records.clear(),
            "dead letters missing: 3 ((b'ATL', b'', True); (b'BUR', b'', True))",
        ),
        (
            lambda records: records.append(records[0]),
            "dead letters too often: 1 ((b'ATL', b'', True))",
        ),
        *(
            (
                _change(0, headers=headers),
                "dead letters not expected: 1 ((b'ATL', b'', False))",
            )
            for headers in ((), ((REASON_HEADER, b""),), ((REASON_HEADER, None),))
        ),
        (
            _change(0, value=b"11"),
            "dead letters not expected: 1 ((b'ATL', b'11', True))",
        ),
        (
            _change(0, value=None),
            "dead letters not expected: 1 ((b'ATL', None, True))",
        ),
        (_append(0, b"BOS", b""), "dead letters not expected: 1 ((b'BOS', b'', False))"),
    ],
)
def test_wrong_dead_letters_are_noticed(spoil: Callable[[Records], None], problem: str) -> None:
    records = dead_letters()
    spoil(records)
    assert problem in judge(FLIGHTS, outputs(), records)


def test_many_mistakes_of_one_kind_make_one_line() -> None:
    problems = judge(FLIGHTS, outputs() + [OutRecord(0, b"ATL", b"3")] * 1500, dead_letters())
    assert problems == ["outputs too often: 1,500 ((b'ATL', b'3'))"]


# --- how long results stayed away ---


def test_the_longest_pause_after_the_kill_counts() -> None:
    assert seconds_away([1.0, 9.9, 10.2, 14.0, 14.1, 16.0], 10.0, 1.0) == pytest.approx(4.0)


def test_a_pause_that_began_before_the_kill_counts() -> None:
    assert seconds_away([9.5, 13.0, 13.1], 10.0, 1.0) == pytest.approx(3.0)


def test_a_partition_that_never_stopped_was_not_away() -> None:
    assert seconds_away([9.8, 10.3, 10.9, 11.5], 10.0, 1.0) == 0.0


def test_a_pause_before_the_kill_does_not_count() -> None:
    assert seconds_away([1.0, 9.8, 10.3], 10.0, 1.0) == 0.0


def test_a_partition_without_results_after_the_kill_did_not_come_back() -> None:
    assert seconds_away([9.0], 10.0, 1.0) is None
    assert measure([[9.0, 10.5], [9.0]], 10.0, 1.0) == Outage(None, 6.0)


def test_the_slowest_partition_is_what_counts() -> None:
    assert measure([[9.5, 13.0], [9.5, 14.0]], 10.0, 0.5) == Outage(4.0, 4.5)

"""The quickstart's judge: it must notice every way in which results can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_pipeline.admin.quickstart.outage import Outage, measure, seconds_away
from kafka_pipeline.admin.quickstart.verdict import REASON_HEADER, OutRecord, expect, judge

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
    verdict = judge(FLIGHTS, outputs(), dead_letters())
    assert verdict.problems == ()
    assert verdict.is_right
    assert (verdict.flights, verdict.outputs, verdict.dead_letters) == (9, 5, 3)


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
        (lambda records: records.pop(0), "outputs that are missing: 1 (ATL: 1)"),
        (lambda records: records.pop(), "outputs that are missing: 1 (BOS: 1)"),
        (lambda records: records.clear(), "outputs that are missing: 5 (ATL: 3; BOS: 2)"),
        (_append(0, b"ATL", b"3"), "outputs that came twice: 1 (ATL: 3)"),
        (_append(0, b"ATL", b"1"), "outputs that came twice: 1 (ATL: 1)"),
        (_swap, "outputs out of order: 1 (ATL: 1 after 2)"),
        (_append(0, b"ATL", b"4"), "outputs that are not a count of their airport: 1 (ATL: b'4')"),
        (_append(0, b"ATL", b"0"), "outputs that are not a count of their airport: 1 (ATL: b'0')"),
        (
            _append(0, b"ATL", b"01"),
            "outputs that are not a count of their airport: 1 (ATL: b'01')",
        ),
        (_append(0, b"ATL", b""), "outputs that are not a count of their airport: 1 (ATL: b'')"),
        (_append(0, b"ATL", None), "outputs that are not a count of their airport: 1 (ATL: None)"),
        (
            _append(0, b"JFK", b"1"),
            "outputs for keys that are not airports of the input: 1 (key b'JFK')",
        ),
        (
            _append(0, b"BUR", b"1"),
            "outputs for keys that are not airports of the input: 1 (key b'BUR')",
        ),
        (
            _append(0, None, b"1"),
            "outputs for keys that are not airports of the input: 1 (key None)",
        ),
        (_change(1, partition=1), "outputs of one airport in two partitions: 1 (ATL)"),
        (_change(0, value=b"2"), "outputs that came twice: 1 (ATL: 2)"),
    ],
)
def test_wrong_outputs_are_noticed(spoil: Callable[[Records], None], problem: str) -> None:
    records = outputs()
    spoil(records)
    verdict = judge(FLIGHTS, records, dead_letters())
    assert not verdict.is_right
    assert problem in verdict.problems


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda records: records.pop(1), "dead letters that are missing: 1 (BUR: 1)"),
        (lambda records: records.clear(), "dead letters that are missing: 3 (ATL: 2; BUR: 1)"),
        (lambda records: records.append(records[0]), "dead letters that came twice: 1 (ATL: 1)"),
        (_change(0, headers=()), "dead letters without a reason: 1 (ATL)"),
        (_change(0, headers=((REASON_HEADER, b""),)), "dead letters without a reason: 1 (ATL)"),
        (_change(0, headers=((REASON_HEADER, None),)), "dead letters without a reason: 1 (ATL)"),
        (
            _change(0, value=b"11"),
            "dead letters that are not a flight with an unknown delay: 1 (b'ATL': b'11')",
        ),
        (
            _change(0, value=None),
            "dead letters that are not a flight with an unknown delay: 1 (b'ATL': None)",
        ),
        (
            _append(0, b"BOS", b""),
            "dead letters that are not a flight with an unknown delay: 1 (b'BOS': b'')",
        ),
    ],
)
def test_wrong_dead_letters_are_noticed(spoil: Callable[[Records], None], problem: str) -> None:
    records = dead_letters()
    spoil(records)
    verdict = judge(FLIGHTS, outputs(), records)
    assert not verdict.is_right
    assert problem in verdict.problems


def test_nothing_in_and_nothing_out_is_not_right() -> None:
    assert not judge([], [], []).is_right


def test_many_mistakes_of_one_kind_make_one_line() -> None:
    verdict = judge(FLIGHTS, outputs() + [OutRecord(0, b"ATL", b"1")] * 1500, dead_letters())
    assert verdict.problems == ("outputs that came twice: 1,500 (ATL: 1; ATL: 1; ATL: 1)",)


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

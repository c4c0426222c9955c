"""The chaos harness judges lookups in tables: even numbers have one without a history."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.dsl_ledger import DslLedger
from tests.chaos.event_times import EventTimes
from tests.chaos.numbered_results import Tally

KEY = b"k00"
WRITTEN = 6
RIGHT = [(1, 1), (2, 2), (3, 2), (4, 2), (5, 5), (6, 6)]
WRONG_AND_LOST = Tally(lost=1, wrong=1)


def judge(found: Sequence[tuple[int, int]]) -> Tally:
    """Count what is wrong in lookups; pairs, which every pipeline has, are lost before."""
    ledger, pairs = (DslLedger([KEY], EventTimes([KEY]), kinds) for kinds in ([b"table"], []))
    for number, row in found:
        ledger.note(KEY, b"sql table %d %d" % (number, row))
    written = {KEY: WRITTEN}
    tally = ledger.tally(written)
    return tally._replace(lost=tally.lost - pairs.tally(written).lost)


def with_row(number: int, row: int) -> list[tuple[int, int]]:
    return [(each, row if each == number else found) for each, found in RIGHT]


def test_rows_of_the_past_are_clean() -> None:
    assert judge(RIGHT) == Tally()


def test_a_record_that_comes_late_may_have_a_newer_row_of_a_table_without_a_history() -> None:
    assert judge([(1, 1), (2, 6), (3, 3), (4, 6), (5, 5), (6, 6)]) == Tally()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(with_row(3, 4), id="newer than its record, with a history"),
        pytest.param(with_row(5, 0), id="older than the row before, with a history"),
        pytest.param(with_row(4, 1), id="older than the row before, without"),
    ],
)
def test_a_wrong_row_is_found(wrong: list[tuple[int, int]]) -> None:
    assert judge(wrong) == WRONG_AND_LOST


def test_a_row_that_nobody_has_written_is_found() -> None:
    assert judge(with_row(6, WRITTEN + 1)) == Tally(wrong=1)

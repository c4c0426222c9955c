"""The judge of a join without bounds of time in the chaos harness."""

from __future__ import annotations

import pytest

from tests.chaos.dsl_ledger import DslLedger
from tests.chaos.event_times import EventTimes
from tests.chaos.numbered_results import Tally

KEY = b"k00"
WRITTEN = {KEY: 6}
PAIRS = [1, 2, 4, 5]
"""Every third number has no partner."""


def judge(numbers: list[int]) -> DslLedger:
    ledger = DslLedger([KEY], EventTimes([KEY]), [b"paired"])
    for number in numbers:
        ledger.note(KEY, b"sql paired %d %d" % (number, number))
    return ledger


def tally(ledger: DslLedger) -> Tally:
    """Count what is wrong in these pairs; those with bounds of time are lost before."""
    found = ledger.tally(WRITTEN)
    others = DslLedger([KEY], EventTimes([KEY]), []).tally(WRITTEN)
    return found._replace(lost=found.lost - others.lost)


@pytest.mark.parametrize("numbers", [PAIRS, PAIRS[::-1]])
def test_each_pair_once_in_any_order_is_clean(numbers: list[int]) -> None:
    assert tally(judge(numbers)) == Tally()


@pytest.mark.parametrize("number", PAIRS)
def test_a_missing_pair_is_lost(number: int) -> None:
    numbers = [each for each in PAIRS if each != number]
    assert tally(judge(numbers)) == Tally(lost=1)
    assert any(line.startswith("paired of ") for line in judge(numbers).losses(WRITTEN))


def test_a_pair_that_comes_twice_is_repeated() -> None:
    assert tally(judge([*PAIRS, PAIRS[0]])) == Tally(repeated=1)


@pytest.mark.parametrize("pair", [(1, 2), (3, 3), (0, 0), (-3, -3)])
def test_a_pair_of_no_partners_is_wrong(pair: tuple[int, int]) -> None:
    ledger = judge(PAIRS)
    ledger.note(KEY, b"sql paired %d %d" % pair)
    assert tally(ledger) == Tally(wrong=1)


def test_a_pair_that_nobody_has_written_is_wrong() -> None:
    assert tally(judge([*PAIRS, 7])) == Tally(wrong=1)


def test_an_outage_ends_with_a_later_pair() -> None:
    for mark, is_behind in ((3, False), (4, True)):
        behind = [line for line in judge(PAIRS[:3]).behind({KEY: mark}) if "paired" in line]
        assert bool(behind) == is_behind

"""The judge of best rows in the chaos harness: what is right is clean, all else is found."""

from __future__ import annotations

from functools import cache

import pytest

from tests.chaos.dsl_ledger import BEST, DslLedger
from tests.chaos.event_times import STEP_MS, EventTimes
from tests.chaos.numbered_results import Tally
from tests.user_code.numbered import WINDOW_MS

KEYS = [b"k00", b"k01"]
PER_WINDOW = WINDOW_MS // STEP_MS
LENGTHS = (3 * PER_WINDOW + 2, 2 * PER_WINDOW + 7)
Result = tuple[bytes, int, int]


@cache
def made() -> tuple[EventTimes, tuple[Result, ...]]:
    """Return two epochs and what they must give: key, start and number."""
    times, results, written = EventTimes(KEYS), list[Result](), dict.fromkeys(KEYS, 0)
    for length in LENGTHS:
        for key in KEYS:
            numbers = range(written[key] + 1, written[key] + length + 1)
            for first in range(0, length, PER_WINDOW):
                start = times.next_time(key, numbers[first])
                in_window = numbers[first : first + PER_WINDOW]
                results += [(key, start, number) for number in in_window[: -BEST - 1 : -1]]
        written = {key: number + length for key, number in written.items()}
        times.begin_epoch(written)
    return times, tuple(results)


def right() -> list[Result]:
    return list(made()[1])


def judge(results: list[Result]) -> DslLedger:
    ledger = DslLedger(KEYS, made()[0], [b"best"])
    for key, start, number in results:
        ledger.note(key, b"sql best %d %d" % (start, number))
    return ledger


def tally(results: list[Result]) -> Tally:
    """Count what is wrong in best rows; pairs, which every pipeline has, are lost before."""
    ledger = judge(results)
    nothing = dict.fromkeys(KEYS, 0)
    pairs = judge(right()).tally(nothing).lost
    found = ledger.tally(nothing)
    return found._replace(lost=found.lost - pairs)


def test_best_rows_of_all_windows_are_clean() -> None:
    results = right()
    assert len(results) == len(KEYS) * (4 * BEST - 1 + 3 * BEST)
    assert tally(results) == Tally()


@pytest.mark.parametrize("at", [0, 1, BEST, 3 * BEST, -1])
def test_a_row_that_is_missing_is_lost(at: int) -> None:
    results = right()
    del results[at]
    assert tally(results) == Tally(lost=1)


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_row_that_comes_twice_is_repeated(at: int) -> None:
    results = right()
    assert tally([*results, results[at]]) == Tally(repeated=1)


@pytest.mark.parametrize("at", [0, 1, BEST - 1])
def test_rows_in_another_order_are_reordered(at: int) -> None:
    results = right()
    results[at], results[at + 1] = results[at + 1], results[at]
    assert tally(results) == Tally(reordered=1)


def test_a_row_that_is_not_among_the_best_is_wrong() -> None:
    results = right()
    key, start, number = results[BEST - 1]
    assert tally([*results, (key, start, number - 1)]) == Tally(wrong=1)


def test_a_row_of_another_window_is_wrong() -> None:
    results = right()
    key, _, number = results[0]
    _, start, _ = results[BEST]
    assert tally([*results, (key, start, number)]) == Tally(wrong=1)

"""The judge of sums of counts in the chaos harness: what is right is clean, all else is found."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.chaos.dsl_ledger import DslLedger
from tests.chaos.event_times import EventTimes
from tests.chaos.numbered_results import Tally

KEYS = [b"k00", b"k04", b"k01"]
"""Two keys of one bucket, and one of another."""
WRITTEN = {b"k00": 3, b"k04": 2, b"k01": 1}
RIGHT = [(b"bucket0", 1, 1), (b"bucket1", 1, 1), (b"bucket0", 3, 2), (b"bucket0", 5, 2)]
Result = tuple[bytes, int, int]


def judge(results: list[Result]) -> DslLedger:
    ledger = DslLedger(KEYS, EventTimes(KEYS), [b"total"])
    for bucket, total, counts in results:
        ledger.note(bucket, b"sql total %d %d" % (total, counts))
    return ledger


def tally(results: list[Result], written: Mapping[bytes, int] = WRITTEN) -> Tally:
    """Count what is wrong in sums; pairs, which every pipeline has, are lost before."""
    found = judge(results).tally(written)
    pairs = DslLedger(KEYS, EventTimes(KEYS), []).tally(written)
    return found._replace(lost=found.lost - pairs.lost)


def test_sums_that_grow_to_all_records_are_clean() -> None:
    assert tally(RIGHT) == Tally()


def test_results_in_between_may_be_missing() -> None:
    assert tally(RIGHT[1:]) == tally(RIGHT[:2] + RIGHT[3:]) == Tally()


def test_records_that_the_last_result_lacks_are_lost() -> None:
    assert tally(RIGHT[:-1]) == Tally(lost=2)


def test_a_count_that_was_added_twice_is_wrong() -> None:
    """As if the former count of 2 had not been taken out for the count of 3."""
    assert tally([*RIGHT[:-1], (b"bucket0", 7, 2)]) == Tally(wrong=1)


def test_a_key_that_the_last_result_lacks_is_lost() -> None:
    assert tally([*RIGHT[:2], (b"bucket0", 5, 1)]) == Tally(lost=1)


def test_a_result_that_comes_twice_is_repeated() -> None:
    assert tally([*RIGHT, RIGHT[-1]]) == Tally(repeated=1)


def test_a_smaller_sum_after_a_larger_one_is_reordered() -> None:
    assert tally([RIGHT[1], RIGHT[3], RIGHT[2]]) == Tally(lost=2, reordered=1)


@pytest.mark.parametrize("result", [(b"bucket0", 3, 3), (b"bucket0", 1, 2), (b"bucket2", 1, 1)])
def test_a_result_that_no_records_can_lead_to_is_wrong(result: Result) -> None:
    assert tally([result, *RIGHT]) == Tally(wrong=1)


def test_results_are_complete_and_flow_again_with_the_last_records() -> None:
    before = {key: number - 1 for key, number in WRITTEN.items()}
    for results, is_there in ((RIGHT, True), (RIGHT[:-1], False)):
        behind = [each for each in judge(results).behind(before) if each.startswith("total")]
        lost = [each for each in judge(results).losses(WRITTEN) if each.startswith("total")]
        assert (not behind, not lost) == (is_there, is_there)

"""The judge of the chaos harness: it must find what it is there to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.ledger import Ledger, audit_of, pair_of, sum_of
from tests.chaos.numbered_results import Tally

WRITTEN = {b"a": 3, b"b": 2}
CLEAN = [
    (b"a", 1),
    (b"b", 1),
    (b"a", sum_of(1)),
    (b"a", 2),
    (b"b", sum_of(1)),
    (b"a", 3),
    (b"a", sum_of(2)),
    (b"a", sum_of(3)),
    (b"b", 2),
    (b"b", sum_of(2)),
    *(
        (key, result_of(number))
        for result_of in (audit_of, pair_of)
        for key, written in WRITTEN.items()
        for number in range(1, written + 1)
    ),
]


def ledger_of(results: list[tuple[bytes, int]]) -> Ledger:
    ledger = Ledger(WRITTEN)
    for key, value in results:
        ledger.note(key, b"%d" % value)
    return ledger


def test_exact_results_are_clean() -> None:
    ledger = ledger_of(CLEAN)
    assert ledger.tally(WRITTEN) == Tally()
    assert ledger.is_complete(WRITTEN)
    assert ledger.results == len(CLEAN)


@pytest.mark.parametrize("missing", range(len(CLEAN)))
def test_each_missing_result_is_lost(missing: int) -> None:
    ledger = ledger_of(CLEAN[:missing] + CLEAN[missing + 1 :])
    assert ledger.tally(WRITTEN) == Tally(lost=1)


@pytest.mark.parametrize("again", range(len(CLEAN)))
def test_each_result_that_comes_twice_is_repeated(again: int) -> None:
    assert ledger_of([*CLEAN, CLEAN[again]]).tally(WRITTEN) == Tally(repeated=1)


def test_results_of_one_key_in_another_order_are_reordered() -> None:
    swapped = list(CLEAN)
    swapped[0], swapped[3] = swapped[3], swapped[0]
    assert ledger_of(swapped).tally(WRITTEN) == Tally(reordered=1)


@pytest.mark.parametrize(
    "value", [b"", b"x", b"-1", b"0", *(b"%d" % of(0) for of in (sum_of, audit_of, pair_of))]
)
def test_what_no_record_leads_to_is_wrong(value: bytes) -> None:
    ledger = ledger_of(CLEAN)
    ledger.note(b"a", value)
    assert ledger.tally(WRITTEN) == Tally(wrong=1)


def test_a_result_that_no_record_was_written_for_is_wrong() -> None:
    assert ledger_of([*CLEAN, (b"a", 4)]).tally(WRITTEN) == Tally(wrong=1)


def test_results_of_other_keys_may_come_but_not_twice() -> None:
    ledger = ledger_of(CLEAN)
    ledger.note(b"poison", b"1")
    ledger.note(None, b"1")
    assert ledger.tally(WRITTEN) == Tally()
    assert ledger.others == {(b"poison", b"1"): 1, (None, b"1"): 1}
    ledger.note(b"poison", b"1")
    assert ledger.tally(WRITTEN) == Tally(repeated=1)


def without_sums_of_2() -> Ledger:
    """Return a ledger of a pipeline that had no Adder while number 2 was written."""
    gone = [(key, of(2)) for key in WRITTEN for of in (sum_of, pair_of)]
    late = [(b"a", 3), *((b"a", of(3)) for of in (sum_of, audit_of, pair_of))]
    ledger = ledger_of([entry for entry in CLEAN if entry not in gone and entry not in late])
    two = {b"a": 2, b"b": 2}
    assert not ledger.is_complete(two)
    ledger.suspend_sums({b"a": 1, b"b": 1})
    assert ledger.is_complete(two)
    assert ledger.tally(two) == Tally()
    ledger.resume_sums(two)
    for key, value in late:
        ledger.note(key, b"%d" % value)
    return ledger


def test_without_an_adder_there_are_no_sums_and_pairs_but_before_and_after_there_are() -> None:
    ledger = without_sums_of_2()
    assert ledger.is_complete(WRITTEN)
    assert ledger.tally(WRITTEN) == Tally()
    assert ledger.excused == [({b"a": 1, b"b": 1}, {b"a": 2, b"b": 2})]


def test_who_reads_all_again_excuses_afterwards() -> None:
    low, high = {b"a": 1, b"b": 1}, {b"a": 2, b"b": 1}
    gone = [(b"a", of(2)) for of in (sum_of, pair_of)]
    ledger = ledger_of([entry for entry in CLEAN if entry not in gone])
    ledger.excuse(low, high)
    assert ledger.tally(WRITTEN) == Tally()
    of_all = ledger_of(CLEAN)
    of_all.excuse(low, high)
    assert of_all.tally(WRITTEN) == Tally(repeated=2)


@pytest.mark.parametrize("of", [sum_of, pair_of])
def test_a_sum_that_must_not_come_is_noticed_and_one_that_must_come_is_lost(
    of: Callable[[int], int],
) -> None:
    ledger = without_sums_of_2()
    ledger.note(b"b", b"%d" % of(2))
    assert ledger.tally(WRITTEN) == Tally(repeated=1)
    assert ledger.tally(WRITTEN | {b"a": 4}).lost == 4


def test_an_outage_ends_when_all_keys_and_kinds_have_come_by() -> None:
    marks = {b"a": 2, b"b": 1}
    assert not ledger_of(CLEAN[:-1]).has_passed(marks)
    assert ledger_of(CLEAN).has_passed(marks)


def test_what_keeps_an_outage_from_its_end_is_named() -> None:
    ledger = ledger_of([row for row in CLEAN if row != (b"a", sum_of(3))])
    assert ledger.behind({b"a": 2, b"b": 1}) == ["sum of b'a': 2 of 3"]

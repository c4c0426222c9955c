"""The judge of the chaos harness: it must find what it is there to find."""

from __future__ import annotations

import pytest

from tests.chaos.ledger import Ledger, Tally, audit_of, pair_of, sum_of

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


def ledger_of(results: list[tuple[bytes, int]], sums_may_miss: bool = False) -> Ledger:
    ledger = Ledger(WRITTEN, sums_may_miss)
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


def test_other_keys_are_none_of_its_business() -> None:
    ledger = ledger_of(CLEAN)
    ledger.note(b"poison", b"1")
    ledger.note(None, b"1")
    assert ledger.tally(WRITTEN) == Tally()


def test_sums_may_miss_where_the_pipeline_is_edited_but_not_come_twice() -> None:
    without = [entry for entry in CLEAN if entry != (b"a", sum_of(2))]
    assert ledger_of(without, sums_may_miss=True).tally(WRITTEN) == Tally()
    twice = [*without, (b"b", sum_of(2))]
    assert ledger_of(twice, sums_may_miss=True).tally(WRITTEN) == Tally(repeated=1)


def test_an_outage_ends_when_all_keys_and_kinds_have_come_by() -> None:
    marks = {b"a": 2, b"b": 1}
    assert not ledger_of(CLEAN[:-1]).has_passed(marks)
    assert ledger_of(CLEAN).has_passed(marks)


def test_what_keeps_an_outage_from_its_end_is_named() -> None:
    ledger = ledger_of([row for row in CLEAN if row != (b"a", sum_of(3))])
    assert ledger.behind({b"a": 2, b"b": 1}) == ["sum of b'a': 2 of 3"]

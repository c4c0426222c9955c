"""Counts of what a task did to records: what they are by, and how they are added up."""

from __future__ import annotations

from collections import Counter

import pytest

from kafka_pipeline.common.committed import OTHER_REASONS, Committed
from kafka_pipeline.streams.engine.figures import (
    MOST_ERRORS,
    MOST_REASONS,
    OTHER_ERRORS,
    TaskFigures,
    late_of,
)
from kafka_pipeline.streams.engine.outputs import Dropped


def test_classes_that_user_code_makes_up_are_counted_together_after_the_first_ones() -> None:
    figures = TaskFigures()
    for number in range(100):
        figures.reject(f"shop.Error{number}")
    figures.reject("shop.Error0")
    assert len(figures.rejected) == MOST_ERRORS + 1
    assert figures.rejected[OTHER_ERRORS] == 100 - MOST_ERRORS
    assert figures.rejected["shop.Error0"] == 2


def test_long_names_are_shortened() -> None:
    figures = TaskFigures()
    figures.reject("shop." + "x" * 1000)
    ((name, _),) = figures.rejected.items()
    assert len(name) < 100


def test_counts_of_transactions_only_grow_when_they_are_added() -> None:
    total = TaskFigures()
    for transaction in range(30):
        done = TaskFigures(sent_bytes=transaction)
        done.reject("builtins.KeyError", 2)
        done.reject(f"shop.Error{transaction}")
        before = dict(total.rejected)
        total += done
        assert all(total.rejected[error] >= count for error, count in before.items())
    assert total.sent_bytes == sum(range(30))
    assert total.rejected["builtins.KeyError"] == 60
    assert total.rejected.total() == 90
    assert len(total.rejected) == MOST_ERRORS + 1


def test_reasons_that_user_code_makes_up_are_counted_together_after_the_first_ones() -> None:
    figures = TaskFigures(dropped=Counter(Dropped(f"order {n:03} is odd", "p") for n in range(100)))
    dropped = figures.dropped_by_reason
    assert len(dropped) == MOST_REASONS + 1
    assert dropped[OTHER_REASONS] == 100 - MOST_REASONS
    assert dropped["order 000 is odd"] == 1


def test_reasons_that_user_code_makes_up_do_not_fill_the_memory() -> None:
    total = TaskFigures()
    for transaction in range(50):
        made_up = (Dropped(f"order {transaction}-{n} is odd", "p") for n in range(100))
        total += TaskFigures(dropped=Counter([*made_up, Dropped("late", "p")]))
    assert len(total.dropped) < 1100
    assert total.dropped.total() == 50 * 101
    assert sum(total.dropped_by_reason.values()) == 50 * 101


def test_long_reasons_with_the_same_beginning_are_counted_together() -> None:
    long = "x" * 80
    figures = TaskFigures(dropped=Counter(Dropped(f"{long} {n}", "p") for n in range(3)))
    assert figures.dropped_by_reason == {f"{long}…": 3}


@pytest.mark.parametrize("reason", ["expired", "x" * 200, "ü" * 30, "", "a:b=c,d"])
def test_counts_that_were_committed_are_counted_once(reason: str) -> None:
    """Offsets keep long reasons together; a start in the same process finds them in both."""
    figures = TaskFigures(dropped=Counter({Dropped(reason, "p"): 3, Dropped("null key", "p"): 1}))
    at = Committed(7, dropped=tuple(figures.dropped_by_reason.items()))
    found = Committed.read(7, at.metadata)
    figures.resume_dropped(dict(found.dropped))
    assert sum(figures.dropped_by_reason.values()) == 4
    fresh = TaskFigures()
    fresh.resume_dropped(dict(found.dropped))
    assert sum(fresh.dropped_by_reason.values()) == 4


def test_late_records_are_those_that_expired_in_their_order_or_while_nothing_came() -> None:
    places = {"expired": 2, "expired after idle (late_to)": 3, "partitioner": 5}
    dropped = Counter({Dropped(reason, "topic"): n for reason, n in places.items()})
    dropped[Dropped("expired", "store")] = 7
    assert late_of(TaskFigures(dropped=dropped).dropped_by_reason) == 12

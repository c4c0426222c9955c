"""The limit of `row_number()` changes, and the state is kept."""

from __future__ import annotations

import pytest

from tests.tiers import long_but_the_first
from tests.unit.streams.sql.grouped_job import Job, OpenedOnce, Result, best_of, columns_of
from tests.unit.streams.sql.test_best_rows import HOUR, best

pytestmark = pytest.mark.integration

ROWS = [{"key": "a", "customer": "x", "n": n, "at": n} for n in (1, 2, 3, 4, 5)]
BY_PLACE = "concat(customer, '-', place) AS key, n"
GROUPS = ("customer", f"customer, {HOUR}")


def query(limit: int, select: str = BY_PLACE, groups: str = "customer") -> str:
    return best_of(best(select, groups, f"WHERE place <= {limit}"))


def given(results: list[Result]) -> dict[str | None, int | None]:
    return {each.key: each.value and each.value["n"] for each in results}


@pytest.mark.parametrize("groups", long_but_the_first(GROUPS))
def test_smaller_limit_cuts_and_deletes_and_a_larger_one_grows(
    shared: OpenedOnce, groups: str
) -> None:
    job = Job(query(3, groups=groups), shared)
    job.send(ROWS)
    assert given(job.take()) == {"x-1": 5, "x-2": 4, "x-3": 3}
    job.close()
    # One that does not come among the best: nothing but the deletions is given, and once only.
    job = Job(query(1, groups=groups), shared, job.stores)
    job.send([{"key": "a", "customer": "x", "n": 0, "at": 6}])
    assert given(job.take()) == {"x-2": None, "x-3": None}
    job.restart()
    job.send([{"key": "a", "customer": "x", "n": 6, "at": 7}])
    assert given(job.take()) == {"x-1": 6}
    job.close()
    # What was cut is gone.
    job = Job(query(5, groups=groups), shared, job.stores)
    job.send([{"key": "a", "customer": "x", "n": 4, "at": 8}])
    assert given(job.take()) == {"x-2": 4}
    job.restart()
    job.send([{"key": "a", "customer": "x", "n": 5, "at": 9}])
    assert given(job.take()) == {"x-2": 5, "x-3": 4}
    job.close()


def test_larger_limit_goes_on_with_the_rows_that_were_kept(shared: OpenedOnce) -> None:
    job = Job(query(2), shared)
    job.send(ROWS)
    job.close()
    job = Job(query(4), shared, job.stores)
    job.take()
    job.send([{"key": "a", "customer": "x", "n": 3, "at": 9}])
    assert given(job.take()) == {"x-3": 3}
    job.close()


def test_group_is_cut_when_it_is_merged_next(shared: OpenedOnce) -> None:
    job = Job(query(2), shared)
    job.send([{**row, "customer": name} for row in ROWS for name in "xy"])
    job.close()
    job = Job(query(1), shared, job.stores)
    job.send([{"key": "a", "customer": "x", "n": 0, "at": 6}])
    job.take()
    job.restart()
    job.send([{"key": "a", "customer": name, "n": 0, "at": 7} for name in "xy"])
    assert given(job.take()) == {"y-2": None}
    job.close()


def test_key_that_a_result_still_has_is_not_deleted(shared: OpenedOnce) -> None:
    job = Job(query(3, "customer AS key, n"), shared)
    job.send(ROWS)
    job.close()
    job = Job(query(1, "customer AS key, n"), shared, job.stores)
    job.take()
    job.send([{"key": "a", "customer": "x", "n": 0, "at": 6}])
    assert job.take() == []
    job.close()


@pytest.mark.parametrize(("former", "now"), [(3, 1), (1, 3)])
def test_rows_of_the_former_query_are_read_from_the_topic(
    shared: OpenedOnce, former: int, now: int
) -> None:
    first, second = Job(query(former), shared), Job(query(now), shared)
    sent: list[tuple[object, ...]] = []
    first.deliver = lambda topic, *rest: sent.append((topic, *rest))  # type: ignore[method-assign]
    Job.deliver(first, "in", 0, *columns_of(ROWS))
    ((topic, partition, keys, values, times, headers),) = sent
    second.deliver(topic, partition, keys, values, times, headers)  # type: ignore[arg-type]
    assert given(second.take()) == {"x-1": 5}
    first.close()
    second.close()

"""`rank()` and `dense_rank()`, and numbers of all rows of a group: what they give and refuse."""

from __future__ import annotations

import pytest

from kafka_pipeline.streams.sql.local import LocalQueries
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec
from kafka_pipeline.streams.sql.state_change import state_change
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.folding import SCHEMA, Folding, opened, records
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, OpenedOnce, best_of

pytestmark = pytest.mark.integration

HOUR = "window(timestamp, '1 hour')"


def ranked(
    select: str = "concat(key, '-', customer) AS key, place, n",
    groups: str = "key",
    limit: str = "place <= 2",
    function: str = "rank",
    source: str = "input",
) -> str:
    """Return a query for the rows of groups with the best ranks."""
    return (
        f"SELECT {select} FROM (SELECT *, {function}() OVER (PARTITION BY {groups} "
        f"ORDER BY n DESC) AS place FROM {source}) WHERE {limit}"
    )


def row(customer: str, n: int, at: float, key: str = "a") -> dict[str, object]:
    return {"key": key, "customer": customer, "n": n, "at": at}


def test_rows_that_tie_share_a_place_and_rows_that_lose_theirs_are_deleted(
    shared: OpenedOnce,
) -> None:
    job = Job(best_of(ranked()), shared)
    job.send([row("x", 5, 0), row("y", 7, 1), row("z", 5, 2)])
    assert [each[1:4] for each in job.take()] == [
        ("a-y", {"place": 1, "n": 7}, 2 * MINUTE_MS),
        ("a-x", {"place": 2, "n": 5}, 2 * MINUTE_MS),
        ("a-z", {"place": 2, "n": 5}, 2 * MINUTE_MS),
    ]
    job.restart()
    # Two more at the top: all that had the second place lose it.
    job.send([row("v", 7, 3), row("w", 4, 4)])
    assert [each[1:4] for each in job.take()] == [
        ("a-x", None, 4 * MINUTE_MS),
        ("a-z", None, 4 * MINUTE_MS),
        ("a-v", {"place": 1, "n": 7}, 4 * MINUTE_MS),
    ]
    job.close()


def test_last_row_of_a_key_counts_and_one_that_was_hidden_comes_back(shared: OpenedOnce) -> None:
    job = Job(best_of(ranked("concat(key, '-', n) AS key, customer", limit="place = 1")), shared)
    job.send([row("x", 5, 1), row("z", 5, 2)])
    assert [each[1:3] for each in job.take()] == [("a-5", {"customer": "z"})]
    # Between both: the last one stays.
    job.send([row("y", 5, 1.5)])
    assert job.take() == []
    job.close()


def test_hidden_row_comes_back_when_the_last_one_of_its_key_is_gone(shared: OpenedOnce) -> None:
    query = ranked("concat(key, '-', customer) AS key, n, place", limit="place <= 2")
    job = Job(best_of(query), shared)
    job.send([row("x", 5, 1), row("x", 4, 2)])
    assert [each[1:3] for each in job.take()] == [("a-x", {"n": 4, "place": 2})]
    job.send([row("y", 6, 3)])
    assert [each[1:3] for each in job.take()] == [
        ("a-y", {"n": 6, "place": 1}),
        ("a-x", {"n": 5, "place": 2}),
    ]
    job.close()


def test_dense_ranks_count_places_and_not_rows(shared: OpenedOnce) -> None:
    job = Job(best_of(ranked(function="dense_rank")), shared)
    job.send([row("x", 5, 0), row("y", 7, 1), row("z", 5, 2), row("v", 7, 3), row("w", 4, 4)])
    assert {each.key: each.value["place"] for each in job.take()} == {
        "a-y": 1,
        "a-v": 1,
        "a-x": 2,
        "a-z": 2,
    }
    job.close()


def test_window_gives_all_rows_that_tie_once_and_late_records_do_not_count(
    shared: OpenedOnce,
) -> None:
    query = ranked(
        "key, w.start AS hour, customer",
        "key, w",
        "place = 1",
        source=f"(SELECT *, {HOUR} AS w FROM input)",
    )
    job = Job(best_of(query, "grace: 10 min\n  emit: on_close\n  late_to: late"), shared)
    job.send([row("x", 5, 1), row("y", 5, 2), row("z", 4, 3)])
    job.restart()
    job.send([row("v", 5, 69), row("w", 5, 59)])
    assert job.take() == []
    job.send([row("u", 1, 71), row("t", 9, 4)])
    late, *results = sorted(job.take(), key=lambda each: each.topic != "late_records")
    assert (late.topic, late.value) == ("late_records", {"customer": "t", "n": 9})
    assert [(each.value["customer"], each.timestamp) for each in results] == [
        ("x", 59 * MINUTE_MS),
        ("y", 59 * MINUTE_MS),
        ("w", 59 * MINUTE_MS),
    ]
    job.close()


def test_rows_that_were_kept_for_the_close_are_given_when_emit_is_changed(
    shared: OpenedOnce,
) -> None:
    query = ranked(groups=f"key, {HOUR}", select="concat(key, customer, window.start) AS key, n")
    query = query.replace("SELECT *,", f"SELECT *, {HOUR},")
    job = Job(best_of(query, "grace: 10 min\n  emit: on_close"), shared)
    job.send([row("x", 9, 5), row("y", 9, 6)])
    job.close()
    job = Job(best_of(query, "grace: 10 min\n  emit: on_update"), shared, job.stores)
    job.send([row("z", 1, 7)])
    assert [each.value["n"] for each in job.take()] == [9, 9]
    job.close()


def test_rows_beyond_max_collected_reject_the_record_that_names_the_group(
    shared: OpenedOnce,
) -> None:
    job = Job(best_of(ranked(), "max_collected: 2\n  on_error: skip"), shared)
    job.send([row("x", 5, 0), row("y", 5, 1)])
    job.send([row("z", 5, 2), row("v", 1, 3)])
    assert (job.skipped, len(job.take())) == (1, 2)
    # A better one makes room.
    job.send([row("u", 6, 4), row("t", 6, 5)])
    assert job.latest() == {"a-u": {"place": 1, "n": 6}, "a-t": {"place": 1, "n": 6}}
    job.close()


def test_error_of_a_full_group_names_the_group(local: LocalQueries) -> None:
    query = ranked(groups="customer", select="customer, n")
    spec = QuerySpec(query, format="json", schema=SCHEMA, max_collected=2)
    folding = Folding(local.open_aggregation(spec))
    with pytest.raises(
        QueryError, match=r"rank\(\) keeps more than 2 rows of the group \{b\}: see"
    ):
        folding.add(records([{"customer": "b", "n": 1}] * 3))


@pytest.mark.parametrize(
    ("select", "groups", "is_known"),
    long_but_the_first(
        [
            ("key, n, customer", "key", False),
            ("concat(key, n) AS key, customer", "key", True),
            ("concat(key, place) AS key, customer", "key", False),
            ("concat(key, n) AS key, place", "key, customer", False),
            ("concat(key, customer, n) AS key, place", "key, customer", True),
            ("n, place", "key", False),
        ],
        short=2,
    ),
)
def test_rows_of_updates_need_a_key_of_their_own(
    shared: OpenedOnce, select: str, groups: str, is_known: bool
) -> None:
    query = ranked(select, groups)
    if is_known:
        Job(best_of(query), shared).close()
        return
    with pytest.raises(QueryError, match=r"have one place in rank\(\), so the place does not tell"):
        Job(best_of(query), shared)


def test_key_may_be_made_of_an_expression_that_is_in_partition_by_too(shared: OpenedOnce) -> None:
    query = ranked("concat(c, n) AS key, place", "upper(customer)")
    query = query.replace("SELECT *,", "SELECT *, upper(customer) AS c,")
    Job(best_of(query), shared).close()
    with pytest.raises(QueryError, match="so the place does not tell them apart"):
        Job(best_of(query.replace("BY upper", "BY lower")), shared)


@pytest.mark.parametrize(
    ("changed", "found"),
    long_but_the_first(
        [
            (ranked("concat(key, customer, '!') AS key, n"), ""),
            (
                ranked(limit="place <= 3"),
                "were rank() up to 2, int DESC NULLS LAST, now rank() up to",
            ),
            (ranked(function="dense_rank"), "now dense_rank() up to 2"),
            (ranked(limit="place >= 2"), "now rank() of all rows"),
            (ranked(function="row_number"), "the aggregate functions were"),
        ],
        2,
    ),
)
def test_state_belongs_to_a_function_and_a_limit(
    local: LocalQueries, changed: str, found: str
) -> None:
    kept = opened(local, ranked()).shape.content
    said = state_change(kept, opened(local, changed).shape.content).different
    assert (found in said) if found else not said


@pytest.mark.parametrize(
    "limit",
    long_but_the_first(
        ["place <= 2 OR n > 3", "place <= n", "place >= 1", "place <= 2.5D", "place + 1 <= 2"]
    ),
)
def test_condition_that_does_not_limit_places_keeps_all_rows(
    local: LocalQueries, limit: str
) -> None:
    query = ranked(groups="customer", select="n", limit=limit, function="row_number")
    assert '"row_number() of all rows"' in opened(local, query).shape.content


def test_all_rows_of_a_group_are_numbered_and_a_row_in_between_moves_the_others(
    shared: OpenedOnce,
) -> None:
    query = ranked("concat(key, '-', place) AS key, customer", function="row_number", limit="true")
    job = Job(best_of(query), shared)
    job.send([row("x", 5, 0), row("y", 7, 1), row("z", 5, 2)])
    assert [each[1:4] for each in job.take()] == [
        ("a-1", {"customer": "y"}, 2 * MINUTE_MS),
        ("a-2", {"customer": "x"}, 2 * MINUTE_MS),
        ("a-3", {"customer": "z"}, 2 * MINUTE_MS),
    ]
    job.restart()
    # Of rows that tie, the earlier record comes first, whenever it arrives.
    job.send([row("v", 5, 1)])
    assert [each[1:3] for each in job.take()] == [
        ("a-3", {"customer": "v"}),
        ("a-4", {"customer": "z"}),
    ]
    job.close()


@pytest.mark.long
def test_number_that_names_no_row_needs_a_key_with_it(shared: OpenedOnce) -> None:
    for select in ("concat(key, '-', customer) AS key, place", "concat(key, place) AS key, n"):
        Job(best_of(ranked(select, function="row_number", limit="true")), shared).close()
    with pytest.raises(QueryError, match="a row may move to another place, and the result with"):
        Job(best_of(ranked("key, place, n", function="row_number", limit="true")), shared)


def test_group_of_numbered_rows_has_a_limit_of_its_own(shared: OpenedOnce) -> None:
    query = ranked(function="row_number", limit="true")
    job = Job(best_of(query, "max_collected: 2\n  on_error: skip"), shared)
    job.send([row("x", 5, 0), row("y", 6, 1), row("z", 7, 2), row("z", 1, 3, key="b")])
    assert job.skipped == 1
    assert job.latest() == {
        "a-y": {"place": 1, "n": 6},
        "a-x": {"place": 2, "n": 5},
        "b-z": {"place": 1, "n": 1},
    }
    job.close()


def test_columns_of_a_row_may_be_only_the_place(local: LocalQueries) -> None:
    folding = Folding(opened(local, ranked("place", "customer", "place <= 3")))
    folding.add(records([{"n": 1}, {"n": 1}, {"n": 0}]))
    folding.add(records([{"n": 0}]))
    places = [value["place"] for _, value, _ in folding.results()]
    assert places == [1, 1, 3, 3]

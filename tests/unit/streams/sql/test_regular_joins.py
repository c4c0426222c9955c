"""Joins of two inputs without bounds of time: what is kept, sent, deleted and refused.

Python computes the rows and the results.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from msgspec import structs

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import JoinSpec, RegularJoinSpec
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.sql.join_shape import join_change
from kafka_pipeline.streams.sql.spec import QueryError, SparkLostError
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.fake_join import FakeJoin, FakeJoins
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, Row
from tests.unit.streams.sql.join_pipeline import pipeline
from tests.unit.streams.sql.regular_join_model import KINDS, SCHEMA, folded, query_of
from tests.unit.streams.sql.rescaled_job import rescaled

BY_LEFT = "SELECT o.id AS key, o.x, p.x AS y FROM orders o {} JOIN payments p ON o.n = p.n"


def row(id_: str, at: float, n: int | None = 1, x: int = 0, **more: object) -> Row:
    return {"key": None if n is None else str(n), "at": at, "id": id_, "n": n, "x": x, **more}


def job_of(query: str, more: str = "ttl: none") -> Job:
    return Job(pipeline(query, more, SCHEMA), FakeJoins())


def taken(job: Job) -> list[tuple[str | None, object, float]]:
    """Return key, value and minute of the results since the last call."""
    return [(each.key, each.value, each.timestamp / MINUTE_MS) for each in job.take()]


@pytest.mark.parametrize("on", ["columns", "key"])
def test_result_without_a_partner_is_deleted_when_one_comes(on: str) -> None:
    job = job_of(query_of("FULL", on))
    job.send([row("o1", 10), row("o2", 11)], topic="orders")
    job.send([row("p1", 12, 2)], topic="payments")
    assert taken(job) == [
        ("o1", {"x": 0, "y": None}, 10),
        ("o2", {"x": 0, "y": None}, 11),
        ("p1", {"x": None, "y": 0}, 12),
    ]
    job.restart()
    job.send([row("p2", 9, x=5)], topic="payments")
    assert taken(job) == [
        ("o1", None, 10),
        ("o2", None, 11),
        ("o1-p2", {"x": 0, "y": 5}, 10),
        ("o2-p2", {"x": 0, "y": 5}, 11),
    ]
    job.send([row("p3", 13, x=6)], topic="payments")
    assert [each for each, _, _ in taken(job)] == ["o1-p3", "o2-p3"]
    job.close()


def test_result_with_the_same_key_replaces_the_one_without_a_partner() -> None:
    job = job_of(BY_LEFT.format("LEFT"))
    job.send([row("o1", 10)], topic="orders")
    job.send([row("p1", 12, x=3)], topic="payments")
    assert taken(job) == [("o1", {"x": 0, "y": None}, 10), ("o1", {"x": 0, "y": 3}, 12)]
    job.close()


def test_batch_leaves_out_what_it_replaces_itself() -> None:
    job = job_of(query_of("LEFT", "key"))
    orders = [row(f"o{number}", 10 + number, number) for number in range(5)]
    payments = [row(f"p{number}", 11.5 + number, number) for number in range(4)]
    job.send_together({"orders": orders, "payments": payments})
    assert [key for key, _, _ in taken(job)][:2] == ["o0-p0", "o1-p1"]
    job.close()


def test_anti_join_deletes_and_semi_join_gives_a_row_with_its_first_partner() -> None:
    anti, semi = (job_of(query_of(how, "columns")) for how in ("LEFT ANTI", "LEFT SEMI"))
    for job in (anti, semi):
        job.send([row("o1", 10, x=1), row("o2", 10, None)], topic="orders")
    assert taken(anti) == [("o1", {"x": 1}, 10), ("o2", {"x": 0}, 10)]
    assert taken(semi) == []
    for job in (anti, semi):
        job.send([row("p1", 12), row("p2", 13)], topic="payments")
        job.send([row("o3", 14)], topic="orders")
    assert taken(anti) == [("o1", None, 12)]
    assert taken(semi) == [("o1", {"x": 1}, 12), ("o3", {"x": 0}, 14)]
    for job in (anti, semi):
        # No row of the left side is needed any more.
        assert not [*job.stores["P_0"]["left"].scan(b"", None)]
        assert len([*job.stores["P_0"]["right"].scan(b"", None)]) == 2
        job.close()


@pytest.mark.parametrize("on", ["columns", "key and columns"])
def test_rows_with_nulls_have_no_partner(on: str) -> None:
    job = job_of(query_of("LEFT", on))
    job.send([{**row("o1", 10, None), "key": "k"}], topic="orders")
    job.send([{**row("p1", 10, None), "key": "k"}], topic="payments")
    assert [key for key, _, _ in taken(job)] == ["o1"]
    assert job.dropped == {"null key": 1}
    assert not [*job.stores["P_0"]["left"].scan(b"", None)]
    job.close()


@pytest.mark.parametrize("on", ["columns", "key"])
def test_late_records_go_to_their_sink(on: str) -> None:
    job = job_of(query_of("", on), "ttl: 5 min\n  late_to: late")
    job.send([row("o1", 10), row("o2", 5, 2), row("o3", 4.9, 3)], topic="orders")
    (late,) = job.take()
    assert (late.topic, late.value["id"]) == ("late", "o3")
    assert late.headers["__streams.late.window.end"] == b"%d" % (9.9 * MINUTE_MS)
    job.send([row("p1", 15), row("p2", 15, 2), row("p3", 15.1)], topic="payments")
    assert [key for key, _, _ in taken(job)] == ["o1-p1"]
    assert job.dropped == {"expired (late_to)": 1}
    job.close()


@pytest.mark.parametrize("writers", [0, 2])
def test_rows_meet_if_they_are_close_in_time_whatever_came_in_between(writers: int) -> None:
    job = Job(pipeline(query_of("", "key"), "ttl: 5 min", SCHEMA), FakeJoins(), writers=writers)
    job.send([row("o1", 10), row("o2", 15, 2)], topic="orders")
    job.send([row("p1", 20, 2)], topic="payments")
    if writers:
        job.learn(20)
    job.restart()
    job.send([row("p2", 15), row("p3", 15.1), row("p4", 20.1, 2)], topic="payments")
    assert [key for key, _, _ in taken(job)] == ["o2-p1", "o1-p2"]
    job.close()


def test_rows_are_gone_once_all_that_they_may_meet_is_late() -> None:
    job = job_of(query_of("", "key"), "ttl: 5 min")
    job.send([row("o1", 10)], topic="orders")
    day = 24 * 60
    for each in (row("o2", day), row("o3", day)):
        job.send([each], topic="orders")
    job.send([row("p1", 10)], topic="payments")
    assert taken(job) == []
    assert job.dropped == {"expired": 1}
    assert len([*job.stores["P_0"]["left"].scan(b"", None)]) == 2
    job.close()


def test_row_that_is_late_after_idleness_is_counted_as_such() -> None:
    text = pipeline(query_of("", "columns"), "ttl: 5 min", SCHEMA)
    job = Job(text, FakeJoins(), writers=2, sources=["orders", "payments"])
    job.send([row("o1", 10)], topic="orders")
    job.learn(30)
    job.send([row("p1", 12)], topic="payments")
    assert job.take() == []
    assert job.dropped == {"expired after idle": 1}
    job.close()


def test_row_of_a_semi_join_comes_once_though_it_is_kept_for_longer() -> None:
    """Its first partner is in a batch after which it is too old to be kept."""
    before, after = (
        pipeline(query_of("LEFT SEMI", "key"), f"ttl: {ttl}", SCHEMA) for ttl in ("1 min", "2 min")
    )
    job = Job(before, FakeJoins())
    job.send([row("o1", 10)], topic="orders")
    job.send([row("p1", 10.5), row("p2", 11.2, 2)], topic="payments")
    job.close()
    assert [each.key for each in job.take()] == ["o1"]
    longer = Job(after, FakeJoins(), job.stores)
    longer.send([row("p3", 11.5)], topic="payments")
    assert longer.take() == []
    longer.close()


def test_failing_result_rejects_its_record_and_leaves_no_trace() -> None:
    job = job_of(query_of("LEFT", "columns"))
    job.send([row("o1", 10, x=-1), row("o2", 10), {**row("o3", 10), "raw": b"{"}], topic="orders")
    assert job.skipped == 2
    job.send([row("p1", 10, x=-1), row("p2", 11)], topic="payments")
    assert job.skipped == 3
    assert [key for key, _, _ in taken(job)] == ["o2", "o2", "o2-p2"]
    job.close()


def test_result_that_could_not_be_deleted_rejects_its_record() -> None:
    job = job_of(BY_LEFT.format("FULL"))
    job.send([row("o1", 10)], topic="orders")
    job.send([row("p1", 10, 2), row("p2", 10), row("p3", 10, None)], topic="payments")
    assert job.skipped == 1
    # A row that can have no partner needs no key.
    assert [key for key, _, _ in taken(job)] == ["o1", "o1", None]
    job.close()


@pytest.mark.parametrize("is_together", [False, True])
def test_what_is_rejected_does_not_depend_on_batches(is_together: bool) -> None:
    """A payment has no key unless there is an order when it comes."""
    job = job_of(BY_LEFT.replace("o.n = p.n", "o.key = p.key").format("FULL"))
    payments, orders = [row("p1", 10), row("p2", 12)], [row("o1", 11)]
    if is_together:
        job.send_together({"orders": orders, "payments": payments})
    else:
        job.send(payments[:1], topic="payments")
        job.send(orders, topic="orders")
        job.send(payments[1:], topic="payments")
    assert job.skipped == 1
    assert folded(job.take()) == {"o1": {"x": 0, "y": 0}}
    assert len([*job.stores["P_0"]["right"].scan(b"", None)]) == 1
    job.close()


def test_input_joined_with_itself() -> None:
    query = query_of("LEFT", "columns").replace("payments p", "orders p")
    text = pipeline(query, "ttl: none", SCHEMA).replace("[orders, payments]", "[orders]")
    job = Job(text.replace(", payments: payments}", "}"), FakeJoins())
    job.send([row("o1", 10), row("o2", 11), row("o3", 12, None)], topic="orders")
    assert {*folded(job.take())} == {"o1-o1", "o1-o2", "o2-o1", "o2-o2", "o3"}
    job.close()


def test_failing_spark_rejects_no_record_of_an_input_joined_with_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: FakeJoin, pairs: object) -> object:
        raise QueryError("it has no memory")

    query = query_of("LEFT", "key").replace("payments p", "orders p")
    text = pipeline(query, "ttl: none", SCHEMA).replace("[orders, payments]", "[orders]")
    job = Job(text.replace(", payments: payments}", "}"), FakeJoins())
    monkeypatch.setattr(FakeJoin, "results", fail)
    with pytest.raises(SparkLostError, match="it has no memory"):
        job.send([row("o1", 10)], topic="orders")
    job.close()


@pytest.mark.parametrize("on", long_but_the_first(["columns", "key", "key and columns"], 2))
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("ttl", long_but_the_first(["none", "1 h"]))
def test_results_do_not_depend_on_the_number_of_tasks(how: str, on: str, ttl: str) -> None:
    text = pipeline(query_of(how, on), f"ttl: {ttl}", SCHEMA)

    def results(counts: Sequence[int]) -> object:
        job, count = Job(text, FakeJoins(), partitions=counts[0]), counts[0]
        for number, wanted in enumerate(counts):
            if wanted != count:
                job, count = rescaled(job, text, FakeJoins(), count, wanted), wanted
            for topic, many in (("orders", 6), ("payments", 4)):
                rows = [row(f"{topic[0]}{number}.{n}", 10 + number, n) for n in range(many)]
                for partition in range(count):
                    mine = [
                        each
                        for each in rows
                        if default_partition(each["key"].encode(), count) == partition
                    ]
                    if mine:
                        job.send(mine, partition, topic)
        job.close()
        return folded(job.take())

    assert results([2, 2, 3, 3, 1]) == results([1, 1, 1, 1, 1])


@pytest.mark.parametrize(("fewer", "more"), [("orders", "payments"), ("payments", "orders")])
def test_task_may_read_one_of_two_topics_with_different_numbers_of_partitions(
    fewer: str, more: str
) -> None:
    text = pipeline(query_of("", "columns"), "ttl: none", SCHEMA)
    job = Job(text, FakeJoins(), partitions=2, counts={fewer: 1})
    job.send([row("a", 10)], 1, more)
    job.send([row("b", 10)], 0, fewer)
    job.close()
    assert job.skipped == 0
    assert len(job.take()) == 1


def test_topic_has_only_rows_of_the_query() -> None:
    job = job_of(query_of("", "columns"))
    with pytest.raises(ConfigError, match="join-repartition of the processor has other rows"):
        job.deliver("P_join-repartition", 0, [b"k"], [b"x" * 20], [1])
    job.close()


# A change of the query

JOIN = JoinSpec(
    left="orders", right="payments", keeps=(), before_ms=0, after_ms=0, regular=RegularJoinSpec()
)


def content(*by: str, only: str = "", columns: Sequence[str] = ("n int",)) -> str:
    kept = {"left": columns, "right": columns, "keeps": [], "regular": [only, *by]}
    return json.dumps(kept)


@pytest.mark.parametrize(
    ("kept", "wanted", "join", "reason"),
    [
        (content("n = n int"), content("n = n int"), JOIN, ""),
        (content("n = n int"), content("m = n int"), JOIN, "met by n = n int, and now meet by m"),
        (content("n = n int"), content(), JOIN, "now meet by the keys of both"),
        (content(), content("key", "n = n int"), JOIN, "keys of both, and now meet by key, n = n"),
        (content(only="semi"), content(), JOIN, "the kind of the join"),
        (content(), content(), structs.replace(JOIN, keeps=("left",)), "the kind of the join"),
        (content(), content(columns=["m int"]), JOIN, "of orders, it has the columns n int"),
        (content(), content(), structs.replace(JOIN, regular=None), "without bounds of time"),
    ],
)
def test_changes(kept: str, wanted: str, join: JoinSpec, reason: str) -> None:
    found = join_change(join, kept, wanted).different
    assert reason in found
    assert bool(found) == bool(reason)


def test_time_for_which_rows_are_kept_may_change() -> None:
    before = job_of(query_of("", "key"), "ttl: 5 min")
    before.send([row("o1", 10)], topic="orders")
    before.close()
    text = pipeline(query_of("", "key"), "ttl: none", SCHEMA)
    after = Job(text, FakeJoins(), {"P_0": {"shape": before.stores["P_0"]["shape"]}})
    after.send([row("o1", 10)], topic="orders")
    after.close()
    other = pipeline(query_of("LEFT", "key"), "ttl: none", SCHEMA)
    with pytest.raises(QueryError, match="the kind of the join"):
        Job(other, FakeJoins(), {"P_0": {"shape": after.stores["P_0"]["shape"]}})

"""Random upserts through joins without bounds of time, compared with a model of the newest rows.

Python computes the rows and the results. Batches are cut in several ways, tasks start again in
between, and sides are uneven in pace.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.sql.changing_join_state import ChangingJoinState
from kafka_pipeline.streams.sql.changing_sides import ChangingSides
from kafka_pipeline.streams.sql.join_shape import JoinShape, join_change
from kafka_pipeline.streams.sql.spec import QueryError
from tests.tiers import long_but_the_first
from tests.unit.streams.sql.fake_join import FakeJoins
from tests.unit.streams.sql.grouped_job import MINUTE_MS, Job, Row
from tests.unit.streams.sql.join_pipeline import pipeline
from tests.unit.streams.sql.regular_join_model import (
    KINDS,
    SCHEMA,
    SIDES,
    cut,
    folded,
    in_order,
    steps,
)
from tests.unit.streams.sql.rescaled_job import rescaled

SIZE = 30
BOTH = "concat_ws('-', o.key, p.key, o.n, p.n) AS key, o.x, p.x AS y"
LEFT = "concat_ws('-', o.key, o.n, p.n) AS key, o.x"
ON = {
    "columns": "o.n = p.n",
    "key": "o.key = p.key",
    "key and columns": "o.key = p.key AND o.n = p.n",
}
ONLY = ("LEFT SEMI", "LEFT ANTI")
CHANGING = {"both": SIDES, "left": SIDES[:1], "right": SIDES[1:]}


def text_of(how: str, on: str, *, is_checked: bool = False, table: str = "payments") -> str:
    columns = LEFT.replace(", p.n", "") if how in ONLY else BOTH
    more = " AND p.x > o.x" if is_checked else ""
    rows = "(SELECT * FROM orders WHERE x IS NULL OR x < 4)"
    return f"SELECT {columns} FROM {rows} o {how} JOIN {table} p ON {ON[on]}{more}"


def pipeline_of(text: str, changing: Sequence[str], ttl: str = "none") -> str:
    found = pipeline(text, f"ttl: {ttl}", SCHEMA)
    for topic in changing:
        found = found.replace(f"{topic}: {topic}", f"{topic}: {{topic: {topic}, changelog: true}}")
    return found


def random_rows(chance: random.Random, changing: Sequence[str]) -> dict[str, list[Row]]:
    """Return records. The `id` of upserts is their key, and that of others is one of its own.

    Some upserts repeat the former one of their key.
    """
    newest = dict[tuple[str, str], Row]()

    def row(topic: str, index: int) -> Row:
        key = chance.choice(["a", "b", "c", "d"])
        at = 100 + index + chance.choice([0, 0.5, -0.5, chance.randint(-12, 12)])
        id_ = f"{topic[0]}{key}" if topic in changing else f"{topic[0]}{index}"
        if topic in changing and chance.random() < 0.2:
            return {"key": key, "at": at, "raw": None}
        if topic in changing and chance.random() < 0.3 and (topic, key) in newest:
            return {**newest[topic, key], "at": at}
        n, x = chance.choice([None, 0, 1]), chance.choice([None, *range(5)])
        newest[topic, key] = {"key": key, "at": at, "id": id_, "n": n, "x": x}
        return newest[topic, key]

    return {topic: [row(topic, index) for index in range(SIZE)] for topic in SIDES}


class Model:
    """The rows that are there, and their join."""

    def __init__(self, how: str, on: str, changing: Sequence[str], *, is_checked: bool) -> None:
        self._how, self._on, self._is_checked = how, on, is_checked
        self._changing = changing
        self._newest: dict[str, dict[str, Row]] = {topic: {} for topic in SIDES}
        self._all: dict[str, list[Row]] = {topic: [] for topic in SIDES}

    def has(self, topic: str, row: Row) -> bool:
        """Whether a row is there, whatever its time is."""
        former = self._newest[topic].get(row["key"])
        return former is not None and {**former, "at": 0} == {**row, "at": 0}

    def add(self, topic: str, row: Row) -> None:
        if topic not in self._changing:
            self._all[topic].append(row)
        elif "raw" in row:
            self._newest[topic].pop(row["key"], None)
        else:
            self._newest[topic][row["key"]] = row

    @property
    def results(self) -> dict[str, Any]:
        left, right = ([*(self._newest[topic].values()), *self._all[topic]] for topic in SIDES)
        left = [row for row in left if row["x"] is None or row["x"] < 4]
        pairs: list[tuple[Row | None, Row | None]]
        pairs = [(one, two) for one in left for two in right if self._meet(one, two)]
        found = [] if self._how in ONLY else pairs
        with_partner = {id(row) for pair in pairs for row in pair}
        if self._how in ("LEFT", "FULL", "LEFT ANTI"):
            found = [*found, *((row, None) for row in left if id(row) not in with_partner)]
        if self._how == "LEFT SEMI":
            found = [(row, None) for row in left if id(row) in with_partner]
        if self._how in ("RIGHT", "FULL"):
            found = [*found, *((None, row) for row in right if id(row) not in with_partner)]
        return dict(map(self._result, found))

    def _meet(self, left: Row, right: Row) -> bool:
        by_key = left["key"] == right["key"] or "key" not in self._on
        by_n = "columns" not in self._on or (left["n"] is not None and left["n"] == right["n"])
        is_smaller = None not in (left["x"], right["x"]) and left["x"] < right["x"]
        return by_key and by_n and (is_smaller or not self._is_checked)

    def _result(self, pair: tuple[Row | None, Row | None]) -> tuple[str, Any]:
        rows = [row or {"id": None, "n": None, "x": None} for row in pair]
        parts = [row[name] for name in ("id", "n") for row in rows]
        key = "-".join(str(each) for each in parts if each is not None)
        names = ("x",) if self._how in ONLY else ("x", "y")
        return key, {name: row["x"] for name, row in zip(names, rows, strict=False)}


def compare(
    seed: int, how: str, on: str, changing: str, *, is_checked: bool, ttl: str = "none"
) -> None:
    """Compare the results after each batch with those of the model."""
    text, topics = text_of(how, on, is_checked=is_checked), CHANGING[changing]
    chance = random.Random(f"{seed} {text} {changing}")
    rows = random_rows(chance, topics)
    ordered = [each for parts in steps(rows, chance) for each in in_order(parts)]
    for size in (1, 5, 30):
        job = Job(pipeline_of(text, topics, ttl), FakeJoins())
        model = Model(how, on, topics, is_checked=is_checked)
        for batch in cut(ordered, size):
            is_known, sent = True, len(job.results)
            for topic, row in in_order(batch):
                is_known &= model.has(topic, row)
                model.add(topic, row)
            job.send_together(batch)
            where = f"seed {seed}, {size} at a time"
            assert len(job.results) == sent or not is_known or ttl != "none", where
            assert folded(job.results) == model.results, where
            if chance.random() < 0.1:
                job.restart()
        assert job.dropped["expired"] == 0
        job.close()


@pytest.mark.parametrize("changing", long_but_the_first(CHANGING))
@pytest.mark.parametrize("is_checked", long_but_the_first([True, False]))
@pytest.mark.parametrize("on", long_but_the_first(ON, 2))
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("seed", long_but_the_first(range(4)))
def test_results_are_those_of_the_rows_that_are_there(
    seed: int, how: str, on: str, is_checked: bool, changing: str
) -> None:
    compare(seed, how, on, changing, is_checked=is_checked)


@pytest.mark.parametrize("how", long_but_the_first(KINDS, 2))
def test_a_long_ttl_changes_nothing(how: str) -> None:
    compare(7, how, "columns", "both", is_checked=False, ttl="300 d")


@pytest.mark.parametrize(
    ("owner", "name"), [(ChangingSides, "keep"), (ChangingJoinState, "keep_changes")]
)
def test_rows_that_are_not_kept_are_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    monkeypatch.setattr(owner, name, lambda *_: None)
    with pytest.raises(AssertionError, match="seed 0, "):
        compare(0, "LEFT", "columns", "both", is_checked=False)


@pytest.mark.parametrize("changing", long_but_the_first(CHANGING))
@pytest.mark.parametrize("on", long_but_the_first(ON))
@pytest.mark.parametrize("how", KINDS)
def test_results_do_not_depend_on_the_number_of_tasks(how: str, on: str, changing: str) -> None:
    """Rows that move from one task to another come in the order of the tasks, not of time."""
    topics, text = CHANGING[changing], text_of(how, on)
    pipeline_text = pipeline_of(text, topics)
    chance, count = random.Random(f"tasks {text} {changing}"), 1
    rows = random_rows(chance, topics)
    job, model = Job(pipeline_text, FakeJoins()), Model(how, on, topics, is_checked=False)
    for at, wanted in enumerate((1, 3, 3, 2, 1)):
        if wanted != count:
            job, count = rescaled(job, pipeline_text, FakeJoins(), count, wanted), wanted
        for topic in chance.sample(SIDES, 2):
            part = rows[topic][6 * at : 6 * at + 6]
            for each in part:
                model.add(topic, each)
            for partition in range(count):
                mine = [each for each in part if partition_of(each, count) == partition]
                if mine:
                    job.send(mine, partition, topic)
        assert folded(job.results) == model.results, f"after {at}"
    job.close()


def partition_of(each: Row, count: int) -> int:
    return default_partition(each["key"].encode(), count)


def job_of(how: str, changing: Mapping[str, Any] | Sequence[str], ttl: str = "none") -> Job:
    return Job(pipeline_of(text_of(how, "columns"), [*changing], ttl), FakeJoins())


def row(key: str, at: float, n: int | None = 1, x: int = 0, topic: str = "orders") -> Row:
    return {"key": key, "at": at, "id": f"{topic[0]}{key}", "n": n, "x": x}


def taken(job: Job) -> list[tuple[str | None, Any]]:
    return [(each.key, each.value) for each in job.take()]


def payment(key: str, at: float, n: int | None = 1, x: int = 0) -> Row:
    return row(key, at, n, x, "payments")


def test_an_update_in_the_same_batch_gives_its_last_result_only() -> None:
    job = job_of("LEFT", SIDES)
    job.send([payment("p", 1)], topic="payments")
    job.send([row("a", 2), row("a", 3, x=1), row("a", 4, x=2)], topic="orders")
    assert taken(job) == [("oa-pp-1-1", {"x": 2, "y": 0})]
    job.send([row("a", 5, x=3), {"key": "a", "at": 6, "raw": None}], topic="orders")
    assert taken(job) == [("oa-pp-1-1", None)]
    assert job.results == []
    job.close()


@pytest.mark.parametrize(("ttl", "sent"), [("none", []), ("1 d", [("oa-pp-1-1", 3)])])
def test_an_update_that_changes_nothing_gives_nothing_but_a_new_time(
    ttl: str, sent: list[tuple[str, int]]
) -> None:
    """With `ttl`, its row is kept for longer than the former one. A repeated record is not."""
    job = job_of("LEFT", SIDES, ttl)
    job.send([payment("p", 1)], topic="payments")
    job.send([row("a", 2)], topic="orders")
    job.take()
    job.send([row("a", 2), row("a", 3)], topic="orders")
    job.send([row("a", 3)], topic="orders")
    assert [(each.key, each.timestamp // MINUTE_MS) for each in job.take()] == sent
    job.restart()
    job.send([row("a", 4), row("a", 4, x=1), {"key": "a", "at": 5, "raw": None}], topic="orders")
    assert taken(job) == [("oa-pp-1-1", None)]
    job.send([row("a", 6)], topic="orders")
    assert taken(job) == [("oa-pp-1-1", {"x": 0, "y": 0})]
    job.close()


def test_an_update_of_a_partner_replaces_the_result_and_deletes_nothing() -> None:
    job = job_of("LEFT", SIDES)
    job.send([payment("p", 1)], topic="payments")
    job.send([row("a", 2)], topic="orders")
    job.take()
    job.send([payment("p", 3, x=4)], topic="payments")
    assert taken(job) == [("oa-pp-1-1", {"x": 0, "y": 4})]
    job.close()


def test_a_row_whose_join_column_changes_leaves_its_former_partners() -> None:
    job = job_of("FULL", SIDES)
    job.send([payment("p", 1, 1), payment("q", 1, 2)], topic="payments")
    job.send([row("a", 2, 1)], topic="orders")
    job.take()
    job.send([row("a", 3, 2)], topic="orders")
    assert taken(job) == [
        ("oa-pp-1-1", None),
        ("pp-1", {"x": None, "y": 0}),
        ("pq-2", None),
        ("oa-pq-2-2", {"x": 0, "y": 0}),
    ]
    job.send([row("a", 4, None)], topic="orders")
    assert taken(job) == [
        ("oa-pq-2-2", None),
        ("pq-2", {"x": None, "y": 0}),
        ("oa", {"x": 0, "y": None}),
    ]
    job.send([{"key": "a", "at": 5, "raw": None}], topic="orders")
    assert taken(job) == [("oa", None)]
    job.close()


def test_equal_rows_go_one_by_one() -> None:
    """Rows of two keys are equal in all that is kept of them, times included."""
    text = text_of("LEFT SEMI", "columns")
    job = Job(pipeline_of(text, SIDES), FakeJoins())
    job.send([row("a", 1)], topic="orders")
    twins = [{**payment(key, 1), "id": "same"} for key in "pq"]
    job.send(twins, topic="payments")
    assert taken(job) == [("oa-1", {"x": 0})]
    job.send([{"key": "p", "at": 2, "raw": None}], topic="payments")
    assert taken(job) == []
    job.send([{"key": "q", "at": 3, "raw": None}], topic="payments")
    assert taken(job) == [("oa-1", None)]
    job.close()


def test_a_row_whose_time_is_over_is_taken_out_of_nothing() -> None:
    job = job_of("", SIDES, "5 min")
    job.send([row("a", 1), row("b", 100)], topic="orders")
    job.send([payment("p", 1), payment("p", 101)], topic="payments")
    assert job.dropped["expired"] == 1
    job.send([{"key": "a", "at": 102, "raw": None}], topic="orders")
    assert taken(job) == [("ob-pp-1-1", {"x": 0, "y": 0})]
    job.close()


def test_records_without_a_key_replace_nothing_and_are_dropped() -> None:
    job = job_of("FULL", SIDES[:1])
    job.send([{**row("a", 1), "key": None}], topic="orders")
    assert job.dropped == {"null key": 1}
    assert taken(job) == []
    job.close()


def test_a_join_with_itself_takes_rows_out_of_both_sides() -> None:
    query = (
        "SELECT concat_ws('-', o.key, p.key, o.n, p.n) AS key, o.x, p.x AS y FROM orders o "
        "FULL JOIN orders p ON o.n = p.n"
    )
    text = pipeline_of(query, SIDES[:1]).replace("[orders, payments]", "[orders]")
    job = Job(text, FakeJoins())
    assert {name for stores in job.stores.values() for name in stores} >= {"changelog-left"}
    job.send([row("a", 1), row("b", 2)], topic="orders")
    job.send([row("a", 3, 2, 3)], topic="orders")
    assert folded(job.take()) == {
        "oa-oa-2-2": {"x": 3, "y": 3},
        "ob-ob-1-1": {"x": 0, "y": 0},
    }
    job.close()


def test_a_state_goes_on_with_the_same_text_and_the_same_sides_only() -> None:
    job = job_of("LEFT", SIDES)
    job.send([row("a", 1)], topic="orders")
    job.close()
    stores = {"P_0": {"shape": job.stores["P_0"]["shape"]}}
    text = text_of("LEFT", "columns")
    with pytest.raises(QueryError, match="in which orders and payments had updates, each in pl"):
        Job(pipeline_of(text, SIDES[:1]), FakeJoins(), stores)
    joins = FakeJoins()
    Job(pipeline_of(text, SIDES), joins).close()
    shape = joins.opened[0].shape
    other = replace(shape, reading=("SELECT something else",))
    found = join_change(shape.join, shape.content, other.content).different
    assert "the text of the query, the schema, the types of a stage and the time zone" in found
    assert join_change(shape.join, shape.content, shape.content).different == ""
    plain = structs.replace(shape.join, changing=())
    found = join_change(plain, shape.content, replace(shape, join=plain).content).different
    assert "and now no input had updates" in found
    assert JoinShape.from_json(other.to_json()).content == other.content

"""Joins of tables by their keys, and of streams with tables and global tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest

from kafka_pipeline import windows
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.join_cases import JoinCase, Watching, cases, check
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.dsl.test_stream_joins import joiner
from tests.unit.streams.nodes import Nodes, batch


@dataclass(frozen=True, slots=True)
class _WatchChanges(Operation):
    verb = "watch"
    found: list[str]
    needs_old: bool

    def needs_old_values(self, sends_old_values: bool) -> bool:
        return self.needs_old

    def compile(self, step: Step, compiler: Compiling) -> None:
        make = partial(Watching, self.found, changes=True)
        compiler.builder.add_processor(step.name, make, compiler.parents(step))


def watch_changes(table: Table, *, needs_old: bool) -> list[str]:
    """Return a list to which the changes of a table are added, as text."""
    found: list[str] = []
    table.graph.add(_WatchChanges(found, needs_old), [table.step])
    return found


@pytest.mark.parametrize("case", cases("table_joins.txt"), ids=lambda case: case.name)
def test_cases_of_joins_of_tables(case: JoinCase) -> None:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    name = "Joined" if "stored" in case.words else None
    joined = getattr(left, case.method)(right, joiner, name=name)
    results = watch_changes(joined, needs_old="NotSending" not in case.name)
    with TopologyTestDriver(built) as driver:
        check(driver, case, results)


def lines(*found: str) -> JoinCase:
    """Return a case of these lines."""
    return JoinCase("", "", {}, frozenset(), found)


VERSIONED = {
    "join": ("a=l2+r1@5", "", "a=l2+r2@6"),
    "left_join": ("a=l2+r1@5", "", "a=l2+r2@6"),
    "outer_join": ("a=l2+r1@5", "", "a=l2+r2@6"),
}


@pytest.mark.parametrize("method", VERSIONED)
def test_changes_of_versioned_tables_out_of_order_change_nothing(method: str) -> None:
    """KIP-914, as TableTableJoinIntegrationTest.

    testInnerWithVersionedStores, testLeftWithVersionedStores, testOuterWithVersionedStores
    """
    built = builder()
    left = built.table("left", name="Left", history_retention_ms=1000)
    right = built.table("right", name="Right", history_retention_ms=1000)
    results = watch_changes(getattr(left, method)(right, joiner), needs_old=False)
    first, late, last = VERSIONED[method]
    with TopologyTestDriver(built) as driver:
        check(driver, lines("left a:l2@5"), results)
        results.clear()
        check(driver, lines(f"right a:r1@4 -> {first.replace('@', '/null@')}"), results)
        check(driver, lines(f"left a:l1@3 -> {late}"), results)
        check(driver, lines(f"right a:r0@2 -> {late}"), results)
        check(driver, lines(f"right a:r2@6 -> {last.replace('@', '/null@')}"), results)


def test_without_versions_the_last_arrival_counts() -> None:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    results = watch_changes(left.join(right, joiner), needs_old=False)
    with TopologyTestDriver(built) as driver:
        check(driver, lines("left a:l2@5", "right a:r1@4 -> a=l2+r1/null@5"), results)
        check(driver, lines("left a:l1@3 -> a=l1+r1/null@4"), results)


def test_views_and_joins_are_looked_up_without_stores() -> None:
    built = builder()
    left = built.table("left", name="Left").map_values(str.upper)
    right = built.table("right", name="Right").filter(lambda key, value: value != "no")
    joined = left.left_join(right, joiner)
    results = watch_changes(joined.outer_join(left, joiner), needs_old=True)
    assert {store.name for store in built.build().stores} == {"Left", "Right"}
    with TopologyTestDriver(built) as driver:
        check(driver, lines("left a:l@1 -> a=L+null+L/null@1"), results)
        check(driver, lines("right a:no@2 ->"), results)
        check(driver, lines("right a:yes@3 -> a=L+yes+L/L+null+L@3"), results)


def test_a_join_whose_joiner_returns_none_has_no_value() -> None:
    built = builder()
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    nothing: Table = left.join(right, lambda one, other: None)
    results = watch_changes(right.left_join(nothing, joiner), needs_old=False)
    with TopologyTestDriver(built) as driver:
        check(driver, lines("left a:l@1 ->"), results)
        check(driver, lines("right a:r@1 -> a=r+null/null@1"), results)


@pytest.mark.parametrize("case", cases("table_lookups.txt"), ids=lambda case: case.name)
def test_cases_of_joins_with_a_table(case: JoinCase) -> None:
    built, results = builder(), list[str]()
    grace_ms = case.numbers.get("grace")
    history_ms = None if grace_ms is None else 60_000
    table = built.table("right", name="Table", history_retention_ms=history_ms)
    stream = built.stream("left")
    joined = getattr(stream, case.method)(table, joiner, grace_ms=grace_ms, name="Joined")
    joined.process(lambda: Watching(results))
    with TopologyTestDriver(built) as driver:
        check(driver, case, results)


def test_a_versioned_table_is_looked_up_as_of_the_record() -> None:
    """KIP-914; KIP-28 calls it joinPrior."""
    built, results = builder(), list[str]()
    table = built.table("right", name="Table", history_retention_ms=100)
    built.stream("left").left_join(table, joiner).process(lambda: Watching(results))
    with TopologyTestDriver(built) as driver:
        check(driver, lines("right a:one@10 a:two@20 a:null@30"), results)
        found = "a=x+null@9 a=x+one@10 a=x+one@19 a=x+two@25 a=x+null@30"
        check(driver, lines(f"left a:x@9 a:x@10 a:x@19 a:x@25 a:x@30 -> {found}"), results)


def test_null_keys_and_values_in_joins_with_a_table() -> None:
    """RelaxedNullKeyRequirementJoinTest.testRelaxedLeftStreamTableJoin"""
    for method, expected in (("join", ""), ("left_join", "null=x+null@1")):
        built, results = builder(), list[str]()
        table = built.table("right", name="Table")
        getattr(built.stream("left"), method)(table, joiner).process(partial(Watching, results))
        with TopologyTestDriver(built) as driver:
            check(driver, lines(f"left null:x@1 a:null@2 -> {expected}"), results)


GLOBAL = {
    "join": (
        "a=x,k1+one@1 null=y,k1+one@2",
        "a=x,k1+two@4",
    ),
    "left_join": (
        "a=x,k1+one@1 null=y,k1+one@2 b=z,k9+null@3 c=-+null@3",
        "a=x,k1+two@4",
    ),
}


@pytest.mark.parametrize(("method", "expected"), GLOBAL.items())
def test_cases_of_joins_with_a_global_table(method: str, expected: tuple[str, str]) -> None:
    """As KStreamGlobalKTableJoinTest and KStreamGlobalKTableLeftJoinTest, in one case each.

    shouldNotJoinOnGlobalTableUpdates, shouldNotJoinOnNullKeyMapperValues,
    shouldJoinOnNullKeyWithNonNullKeyMapperValues, shouldJoinRegardlessIfMatchFoundOnStreamUpdates
    """
    built, results = builder(), list[str]()
    table = built.global_table("right", name="Global")

    def key_of(key: str | None, value: str) -> str | None:
        return value.partition(",")[2] or None

    joined = getattr(built.stream("left"), method)(table, joiner, key=key_of)
    joined.process(lambda: Watching(results))
    first, second = expected
    with TopologyTestDriver(built) as driver:
        check(driver, lines("right k1:one@100 ->"), results)
        records = "a:x,k1@1 null:y,k1@2 b:z,k9@3 c:-@3 d:null@3"
        check(driver, lines(f"left {records} -> {first}"), results)
        check(driver, lines("right k1:two@100 ->", f"left a:x,k1@4 -> {second}"), results)


@pytest.mark.parametrize("passes_first", [False, True])
def test_a_record_that_waited_finds_its_version_after_a_leap_of_time(
    passes_first: bool,
) -> None:
    built = builder()
    table = built.table("table", name="Table", history_retention_ms=10)
    built.stream("stream").left_join(table, joiner, grace_ms=5, name="Joined").to("out")
    (group,) = built.build().groups
    nodes = Nodes(group, follows_records=False)
    nodes.process(batch([b"old"], keys=[b"a"], timestamps=[15], topic="table"))
    nodes.process(batch([b"x"], keys=[b"a"], timestamps=[20], topic="stream"))
    if passes_first:
        nodes.runtime.pass_time(22)
    nodes.process(batch([b"new"], keys=[b"a"], timestamps=[1000], topic="table"))
    nodes.runtime.pass_time(1000)
    assert nodes.values == [b"x+old"]


def test_what_was_held_back_finds_its_version() -> None:
    built = builder()
    table = built.table("table", name="Table", history_retention_ms=5)
    held = built.stream("stream").left_join(
        built.stream("other"),
        joiner,
        windows.join(before_ms=0, after_ms=0, grace_ms=20),
        name="Held",
    )
    held.left_join(table, joiner).to("out")
    (group,) = built.build().groups
    nodes = Nodes(group, follows_records=False)
    nodes.process(batch([b"old", b"new"], keys=[b"a"] * 2, timestamps=[15, 25], topic="table"))
    nodes.process(batch([b"x"], keys=[b"a"], timestamps=[20], topic="stream"))
    nodes.runtime.pass_time(35)
    nodes.process(batch([b"newer"], keys=[b"a"], timestamps=[35], topic="table"))
    nodes.runtime.pass_time(45)
    assert nodes.values == [b"x+null+old"]

"""Tables: their sources, views, groups, and the streams of their changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kafka_pipeline import Record, StreamsBuilder, serdes
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.dsl.notation import inputs, results, watch
from tests.unit.streams.dsl.running import builder, outputs, pipe

Step = Callable[[Table], Table]


def even(key: str, value: str) -> bool:
    return int(value) % 2 == 0


def add(key: str, value: str, total: str) -> str:
    return f"{total}+{value}"


def subtract(key: str, value: str, total: str) -> str:
    return f"{total}-{value}"


def by_value(key: str, value: str) -> tuple[str | None, str] | None:
    """Group as MockMapper.selectValueKeyValueMapper: by the value."""
    return (None if value == "NULL" else value, value)


@dataclass(frozen=True)
class Case:
    """A step after the table of the topic `in`, and its results."""

    step: Step
    inputs: str
    results: str


KTABLE_IN = "A:1@10 B:2@5 C:3@8 D:4@14 A:null@18 B:null@15"
REPARTITION_IN = "A:1@10 A:null@15 A:1@12 B:2@20 B:4@23 C:NULL@24 B:7@22"

CASES = {
    "KTableSourceTest.testKTable": Case(
        lambda table: table,
        "A:1@10 B:2@11 C:3@12 D:4@13 A:null@14 B:null@15",
        "A=1@10 B=2@11 C=3@12 D=4@13 A=null@14 B=null@15",
    ),
    "KTableSourceTest.testKTableSourceEmitOnChange": Case(
        lambda table: table,
        "A:1@10 B:2@11 A:1@12 B:3@13 A:1@9",
        "A=1@10 B=2@11 A=1@12 B=3@13 A=1@9",
    ),
    # There, a table without a store cannot tell which keys have never passed, and sends a None for
    # those too. Here, tables always have stores.
    "KTableFilterTest.shouldPassThroughWithoutMaterialization, filter": Case(
        lambda table: table.filter(even),
        KTABLE_IN,
        "B=2@5 D=4@14 B=null@15",
    ),
    "KTableFilterTest.shouldPassThroughWithoutMaterialization, filter_not": Case(
        lambda table: table.filter_not(even),
        KTABLE_IN,
        "A=1@10 C=3@8 A=null@18",
    ),
    "KTableFilterTest.shouldPassThroughOnMaterialization": Case(
        lambda table: table.filter(even, name="Even"),
        KTABLE_IN,
        "B=2@5 D=4@14 B=null@15",
    ),
    "KTableMapValuesTest.testKTable": Case(
        lambda table: table.map_values(lambda value: value * 2),
        "A:1@5 B:2@25 C:3@20 D:4@10 A:null@30",
        "A=11@5 B=22@25 C=33@20 D=44@10 A=null@30",
    ),
    "KTableMapValuesTest.testQueryableKTable": Case(
        lambda table: table.map_values(lambda value: value * 2, name="Twice"),
        "A:1@5 B:2@25 C:3@20 D:4@10",
        "A=11@5 B=22@25 C=33@20 D=44@10",
    ),
    "KTableAggregateTest.testAggBasic": Case(
        lambda table: table.group_by(lambda k, v: (k, v)).aggregate(lambda: "0", add, subtract),
        "A:1@10 B:2@15 A:3@20 B:4@18 C:5@5 D:6@25 B:7@15 C:8@10",
        "A=0+1@10 B=0+2@15 A=0+1-1+3@20 B=0+2-2+4@18 C=0+5@5 D=0+6@25 B=0+2-2+4-4+7@18 "
        "C=0+5-5+8@10",
    ),
    "KTableAggregateTest.testAggRepartition": Case(
        lambda table: table.group_by(by_value).aggregate(lambda: "0", add, subtract),
        REPARTITION_IN,
        "1=0+1@10 1=0+1-1@15 1=0+1-1+1@15 2=0+2@20 2=0+2-2@23 4=0+4@23 4=0+4-4@23 7=0+7@22",
    ),
    "KTableAggregateTest.testCount": Case(
        lambda table: table.group_by(by_value).count(),
        "A:green@10 B:green@9 A:blue@12 C:yellow@15 D:green@11",
        "green=1@10 green=2@10 green=1@12 blue=1@12 yellow=1@15 green=2@12",
    ),
    "KTableAggregateTest.testRemoveOldBeforeAddNew": Case(
        lambda table: table.group_by(lambda key, value: (key[0], key[1])).aggregate(
            str, lambda k, v, total: total + v, lambda k, v, total: total.replace(v, "")
        ),
        "11:A@10 12:B@8 11:null@12 12:C@6",
        # The last one subtracts 2, and adds it.
        "1=1@10 1=12@10 1=2@12 1=2@12",
    ),
    "KTableAggregateTest.testShouldNotSendTransientStateIfNotUpgrading (KIP-904)": Case(
        lambda table: table.group_by(lambda key, value: (key, key)).count(),
        "1:a@8 1:b@9",
        "1=1@8 1=1@9",
    ),
    "KTableReduceTest.shouldAddAndSubtract": Case(
        lambda table: table.group_by(lambda key, value: ("all", value)).reduce(
            lambda total, new: f"{total}+{new}", lambda total, old: f"{total}-{old}"
        ),
        "A:a@10 B:b@15 A:null@12 B:c@9",
        "all=a@10 all=a+b@15 all=a+b-a@15 all=a+b-a-b+c@15",
    ),
    "a group whose function returns None has no part of the value": Case(
        lambda table: table.group_by(lambda k, v: None if v == "no" else (v, k)).count(),
        "A:x@1 A:no@2 A:x@3",
        "x=1@1 x=0@2 x=1@3",
    ),
    "KTableFilterTest.shouldSkipNullToRepartitionWithoutMaterialization": Case(
        lambda table: table.filter(even).group_by(lambda k, v: (v, k)).count(),
        "A:1@1 A:3@2 A:2@3 A:5@4 A:7@5",
        "2=1@3 2=0@4",
    ),
    "KTableFilterTest.shouldSkipNullToRepartitionOnMaterialization": Case(
        lambda table: table.filter(even, name="Even").group_by(lambda k, v: (v, k)).count(),
        "A:1@1 A:3@2 A:2@3 A:5@4 A:7@5",
        "2=1@3 2=0@4",
    ),
    "views of views": Case(
        lambda table: (
            table.map_values(lambda v: v * 2)
            .filter_not(lambda k, v: v == "22")
            .group_by(lambda k, v: (v, k))
            .count()
        ),
        "A:1@1 B:1@2 A:2@3 B:null@4",
        "11=1@1 11=2@2 11=1@3 11=0@4",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results(case: Case) -> None:
    built = builder()
    watched = watch(case.step(built.table("in")))
    assert results(built, case.inputs, watched) == case.results.split()


VERSIONED = {
    "KTableAggregateTest.testAggOfVersionedStore": Case(
        lambda table: table.group_by(by_value).aggregate(lambda: "0", add, subtract),
        REPARTITION_IN,
        "1=0+1@10 1=0+1-1@15 2=0+2@20 2=0+2-2@23 4=0+4@23",
    ),
    "KTableAggregateTest.testCountOfVersionedStore": Case(
        lambda table: table.group_by(by_value).count(),
        "A:green@10 B:green@9 A:blue@12 A:blue@11 C:yellow@15 D:green@11",
        "green=1@10 green=2@10 green=1@12 blue=1@12 yellow=1@15 green=2@12",
    ),
}


@pytest.mark.parametrize("case", VERSIONED.values(), ids=VERSIONED)
def test_groups_of_versioned_tables_ignore_what_is_not_the_latest(case: Case) -> None:
    built = builder()
    watched = watch(case.step(built.table("in", history_retention_ms=1000)))
    assert results(built, case.inputs, watched) == case.results.split()


def test_records_without_a_key_are_dropped_and_counted() -> None:
    """KTableSourceTest.kTableShouldLogAndMeterOnSkippedRecords"""
    built = builder()
    watch(built.table("in"))
    with TopologyTestDriver(built) as driver:
        pipe(driver, [("in", None, "value", 0)])
        assert driver.dropped_records == {"null key": 1}


def test_the_store_has_the_last_value_and_its_time() -> None:
    """KTableSourceTest.testValueGetter"""
    built = builder()
    watch(built.table("in", name="Table"))
    with TopologyTestDriver(built) as driver:
        store = driver.get_timestamped_key_value_store("Table")
        pipe(driver, inputs("A:01@10 B:01@20 C:01@15 A:02@30 B:02@5 A:03@29"))
        assert store.get("A") == ("03", 29)
        assert store.get("B") == ("02", 5)
        pipe(driver, inputs("A:null@50"))
        assert store.get("A") is None


def test_a_stream_becomes_a_table() -> None:
    """KStreamImplTest.shouldMaterializeKTableFromKStream"""
    built = builder()
    watched = watch(built.stream("in").to_table(name="Table"))
    assert results(built, "A:1@1 A:2@2 A:null@3", watched) == ["A=1@1", "A=2@2", "A=null@3"]


def test_a_stream_with_other_keys_becomes_a_table_after_a_repartition() -> None:
    """KStreamImplTest.shouldSupportKeyChangeKTableFromKStream"""
    built = builder()
    table = built.stream("in").map(lambda key, value: (value, key)).to_table(name="Table")
    watched = watch(table)
    assert results(built, "A:1@1 B:1@2", watched) == ["1=A@1", "1=B@2"]
    assert [topic.name for topic in built.build().internal_topics] == ["Table-by-key-repartition"]


def test_a_global_table_has_all_keys() -> None:
    built = builder()
    built.global_table("all", name="All")
    built.stream("in").to("out")
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("A:1@1 B:2@2 A:null@3", "all"))
        store = driver.get_timestamped_key_value_store("All")
        assert (store.get("A"), store.get("B")) == (None, ("2", 2))


# Functions that change their arguments


def append(key: str, value: str, found: list[str]) -> list[str]:
    found.append(value)
    return found


def remove(key: str, value: str, found: list[str]) -> list[str]:
    found.remove(value)
    return found


def test_an_adder_may_change_the_aggregate_while_its_old_value_is_needed() -> None:
    built = builder(value_serde=serdes.json)
    table = built.stream("in").group_by_key().aggregate(list, append)
    # A group by length subtracts the old aggregate from the group that it was in.
    lengths = table.group_by(lambda key, found: (str(len(found)), key)).aggregate(
        list, append, remove
    )
    watched = watch(lengths)
    table.to_stream().to("out")
    with TopologyTestDriver(built) as driver:
        pipe(driver, inputs("A:x@1 B:y@2 A:z@3"), value_serde=serdes.json)
        assert outputs(driver, value_serde=serdes.json) == [
            ("A", ["x"], 1),
            ("B", ["y"], 2),
            ("A", ["x", "z"], 3),
        ]
    assert watched == ["1=['A']@1", "1=['A', 'B']@2", "1=['B']@3", "2=['A']@3"]


def test_batches_give_the_same() -> None:
    def build() -> tuple[StreamsBuilder, list[str]]:
        built = builder()
        table = built.table("in").map_values(lambda value: value.upper())
        return built, watch(table.group_by(lambda key, value: (value, key)).count())

    text = "A:x@1 B:y@2 A:y@3 B:null@4 C:x@5 A:y@6"
    one_by_one, watched = build()
    expected = results(one_by_one, text, watched)
    batched, watched = build()
    with TopologyTestDriver(batched) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        topic.pipe_batch([Record(key, value, time) for _, key, value, time in inputs(text)])
    assert sorted(watched) == sorted(expected)


def test_what_the_function_of_group_by_returns_is_checked() -> None:
    built = builder()
    watch(built.table("in").group_by(lambda key, value: value, name="Odd").count(name="Count"))
    with pytest.raises(Exception, match='group_by "Odd" returned a str: it must return a pair'):
        results(built, "A:1@1", [])

"""Tables of queries that follow topics, in pipeline.yaml: what they become, and mistakes."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.lookup_tables import TopicTableSpec
from kafka_pipeline.common.pipelines.specs import FieldTime, SqlSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica, replicas
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.kinds.sql import Sql
from kafka_pipeline.streams.pipeline.partitions import with_counts
from kafka_pipeline.streams.pipeline.units import group_of, settings_of
from kafka_pipeline.streams.sql.spec import QuerySpec
from tests.unit.streams.pipeline.loading import load, problems_in

JOIN = "SELECT i.key, city AS value FROM input i LEFT JOIN customers c ON i.key = c.key"
BY_KEY = "SELECT key, count(*) AS value FROM input GROUP BY key"
BY_VALUE = "SELECT value AS key, count(*) AS value FROM input GROUP BY value"


def pipeline(query: str = JOIN, table: str = "{topic: people, schema: city STRING}") -> str:
    return f"""
sources: {{orders: orders_topic, people: people_topic, more: {{topic: t, value: int64}}}}
processors:
- {{id: A, type: forward, to: [P]}}
- {{id: P, type: sql, query: "{query}", from: [orders], tables: {{customers: {table}}}, to: [sink]}}
"""


def test_table_is_an_input_with_a_store() -> None:
    made = load(pipeline())
    processor = made.processor("P")
    assert isinstance(processor.spec, SqlSpec)
    assert processor.spec.tables == {}
    assert processor.spec.topic_tables == {
        "customers": TopicTableSpec(topic="people", schema="city STRING")
    }
    assert processor.from_ == ("people", "orders", "A")
    assert made.in_topics(processor) == ("people_topic", "orders_topic", "A_P")
    assert made.state_topics(processor) == {"table-customers": "state_topic_P_table-customers"}
    assert processor.stores[0].topic_config["cleanup.policy"] == "compact"


def test_table_with_a_history_has_a_versioned_store_of_another_name() -> None:
    made = load(pipeline(table="{topic: people, schema: city STRING, history: 2 h}"))
    processor = made.processor("P")
    assert isinstance(processor.spec, SqlSpec)
    table = TopicTableSpec(topic="people", schema="city STRING", history_ms=7_200_000)
    assert processor.spec.topic_tables == {"customers": table}
    assert made.state_topics(processor) == {
        "table-customers-history": "state_topic_P_table-customers-history"
    }
    assert processor.stores[0].topic_config["cleanup.policy"] == "compact"
    kind = kind_of(processor.spec)
    (store,) = kind.stores(processor.spec)
    assert (store.family, store.options) == (
        "versioned-key-value",
        {"history_retention_ms": 7_200_000},
    )
    assert kind.keeps(processor.spec) == (
        "the last record of each key of people, with a history of 2 h, as table customers",
    )
    (unit, *_) = [unit for unit in replicas(made) if unit.task.processor == "P"]
    assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


def test_query_carries_which_tables_have_a_history() -> None:
    tables = "{topic: people, history: 1 min}, others: {topic: source}"
    made = load(pipeline(table=tables))
    spec = made.processor("P").spec
    assert isinstance(spec, SqlSpec)
    query = Sql().query(spec)
    assert (query.topic_tables, query.versioned_tables) == (
        {"customers": "", "others": ""},
        ("customers",),
    )
    assert QuerySpec.from_json(query.to_json()) == query


def test_the_source_of_config_yaml_can_be_a_table() -> None:
    made = load(pipeline(table="{topic: source}"))
    assert made.in_topics(made.processor("P")) == ("in", "orders_topic", "A_P")


def test_a_processor_of_its_own_fills_the_store() -> None:
    class Never:
        def open(self, spec: object) -> None:
            raise AssertionError("the query is opened by a task")

        open_aggregation = open

    made = load(pipeline())
    unit = next(unit for unit in replicas(made) if unit.task.processor == "P")
    group = group_of(unit, UserCode(), Never())  # type: ignore[arg-type]
    users = {node.name: node.stores for node in group.nodes if hasattr(node, "stores")}
    assert users == {"table of people of P": ("table-customers",), "P": ("table-customers",)}
    assert {node.name: node.parents for node in group.nodes if node.name in users} == {
        "table of people of P": ("people of P",),
        "P": ("orders of P", "A of P"),
    }


def test_records_and_changes_of_tables_come_in_the_order_of_time() -> None:
    found = {unit.name: settings_of(unit) for unit in replicas(load(pipeline()))}
    assert not found["P"].takes_inputs_as_they_come
    assert found["P"].accumulates


def test_a_task_can_wait_for_changes_that_are_on_their_way() -> None:
    made = load(pipeline().replace("to: [sink]}", "to: [sink], max_task_idle_ms: 500}"))
    found = {unit.name: settings_of(unit) for unit in replicas(made)}
    assert found["P"].max_task_idle_ms == 500
    text = '[{id: P, type: sql, query: "SELECT value FROM input", to: [sink], max_task_idle_ms: 1}]'
    assert '"P": max_task_idle_ms belongs to a query that takes' in problems_in(text)[0]


def test_assignment_carries_what_the_text_says() -> None:
    for unit in replicas(load(pipeline())):
        assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit


@pytest.mark.parametrize("query", [JOIN, BY_KEY, BY_VALUE])
def test_table_and_inputs_must_have_as_many_partitions(query: str) -> None:
    made = load(pipeline(query))
    same = {"orders_topic": 3, "people_topic": 3, "A_P": 3}
    assert with_counts(made, same).task_count(made.processor("P")) == 3
    with pytest.raises(ConfigError, match=r"people_topic has 2, orders_topic has 3, A_P has 3"):
        with_counts(made, {**same, "people_topic": 2})


def test_where_two_processors_do_the_work_the_first_one_has_the_table() -> None:
    made = load(pipeline(BY_VALUE))
    front, back = made.processor("P-rows"), made.processor("P")
    assert made.in_topics(front) == ("people_topic", "orders_topic", "A_P")
    assert made.state_topics(front) == {"table-customers": "state_topic_P-rows_table-customers"}
    assert list(made.state_topics(back)) == ["groups", "shape"]
    assert made.in_topics(back) == ("P_groups-repartition",)


def test_groups_by_key_have_both_stores() -> None:
    made = load(pipeline(BY_KEY))
    assert list(made.state_topics(made.processor("P"))) == ["table-customers", "groups", "shape"]


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("{topic: peoples}", '"P": table "customers": topic names none of sources, got "peoples"'),
        ("{topic: A}", 'topic names none of sources, got "A"'),
        ("{topic: orders}", 'follows "orders", which the processor reads as input too'),
        ("{topic: more}", 'source "more" may say value: avro or json, and it says int64'),
        ("{format: csv, path: a.csv, history: 1 d}", 'unknown key "history"'),
        (
            "{topic: people, history: soon}",
            'history must be a time such as "30 s", "10 min" or "1 h", got "soon"',
        ),
        ("{topic: people, history: 0 s}", 'history must be a time such as "30 s"'),
        (
            "{topic: people, global: true, history: 1 d}",
            "history belongs to a table without global: true, which has the rows that were read so "
            "far, whatever the time of a record: leave out one of them",
        ),
        ("{topic: people, format: csv}", 'unknown key "format"'),
        ("{topic: people, refresh_interval: 1 h}", 'unknown key "refresh_interval"'),
        (
            "{topic: more, global: true}",
            'source "more" may say value: avro or json, and it says int64',
        ),
        ("{topic: orders, global: true}", "which the processor reads as input too"),
        ("{topic: people, global: 1}", "global must be true or false"),
        ("{topic: 5}", "topic must be a string"),
        ("{topic: people}, others: {topic: people}", '"customers" and "others" follow the same'),
        ("{topic: people}, größe: {topic: source}", '"größe" is part of the name of a state topic'),
        ("people", "a table must be a map with format or topic"),
    ],
)
def test_mistakes_are_reported(table: str, problem: str) -> None:
    found = problems_in(pipeline(table=table))
    assert len(found) == 1
    assert problem in found[0]


TIMED = """
sources:
  orders: {{topic: orders_topic, schema: a STRING}}
  people: {{topic: people_topic, timestamp: {time}}}
processors:
- {{id: P, type: sql, query: "{query}", from: [orders], format: {format}, to: [sink],
   tables: {{customers: {{topic: people, schema: "city STRING"{more}}}}}}}
"""


@pytest.mark.parametrize("time", ["{field: at, on_invalid: partition_time}", "wall_clock"])
def test_changes_of_a_table_have_the_time_that_their_source_says(time: str) -> None:
    query = JOIN.replace("AS value", "")
    made = load(TIMED.format(time=time, query=query, format="json", more=", history: 1 h"))
    assert made.processor("P").sources["people"].timestamp in (
        FieldTime(field="at", on_invalid="partition_time"),
        "wall_clock",
    )


@pytest.mark.parametrize(
    ("time", "format_", "more", "problem"),
    [
        (
            "{field: at}",
            "json",
            "",
            '"P": table "customers": a null value deletes a row, and has no field with a time: let '
            'source "people" say on_invalid: partition_time',
        ),
        (
            "{field: at, on_invalid: partition_time}",
            "json",
            ", global: true",
            '"P": table "customers" is global, so a record sees the rows that were read so far, '
            'whatever their time: source "people" must not say timestamp',
        ),
        (
            "{field: at, on_invalid: partition_time}",
            "string",
            "",
            'source "people": the time is in a field, which only values of format: json have',
        ),
    ],
)
def test_times_that_a_table_cannot_have_are_refused(
    time: str, format_: str, more: str, problem: str
) -> None:
    query = JOIN if format_ == "string" else JOIN.replace("AS value", "")
    (found,) = problems_in(TIMED.format(time=time, query=query, format=format_, more=more))
    assert problem in found


def test_a_processor_without_inputs_reads_the_source_which_cannot_be_its_table() -> None:
    text = f'[{{id: P, type: sql, query: "{JOIN}", tables: {{customers: {{topic: source}}}}, to: '
    (found,) = problems_in(text + "[sink]}]")
    assert 'table "customers" follows "source", which the processor reads as input too' in found


def test_functions_of_data_frames_have_such_tables_too() -> None:
    made = load("""
sources: {people: people_topic}
processors:
- {id: P, type: dataframe, function: "shop:f", tables: {c: {topic: people}}, to: [sink]}
""")
    assert made.in_topics(made.processor("P")) == ("people_topic", "in")


GLOBAL = "{topic: people, schema: city STRING, global: true}"


@pytest.mark.parametrize("query", [JOIN, BY_KEY, BY_VALUE])
def test_global_table_is_a_global_store_of_what_reads_the_records(query: str) -> None:
    made = load(pipeline(query, GLOBAL))
    first = made.processor("P-rows" if query is BY_VALUE else "P")
    assert first.from_ == ("orders", "A")
    assert first.global_stores == {"table-customers": "people_topic"}
    assert "table-customers" not in made.state_topics(first)
    if query is BY_VALUE:
        assert made.processor("P").global_stores == {}
    assert "people_topic" in made.user_topics
    policy = next(each for each in made.data_topics(1) if each.name == "people_topic").config
    assert policy == {"cleanup.policy": "compact"}
    with_counts(made, {"people_topic": 7, "orders_topic": 3, "A_P": 3})


def test_global_tables_do_not_need_the_order_of_time() -> None:
    found = {unit.name: settings_of(unit) for unit in replicas(load(pipeline(table=GLOBAL)))}
    assert found["P"].takes_inputs_as_they_come


def test_global_tables_may_be_the_source_of_config_yaml() -> None:
    made = load(pipeline(table="{topic: source, global: true}"))
    assert made.processor("P").global_stores == {"table-customers": "in"}
    for unit in replicas(made):
        assert ProcessorReplica.from_json(unit.to_json(), unit.parameters()) == unit

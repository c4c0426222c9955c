"""Sources with `format: debezium` in pipeline.yaml: who reads them, and who cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import ArcKind
from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.streams.engine.mixed import LookupTable, MixedProcessor
from kafka_pipeline.streams.engine.nodes import ProcessorNode
from kafka_pipeline.streams.pipeline.units import group_of, sharing_key
from kafka_pipeline.streams.sql.change_rows import ChangesOfQuery, ChangesOfTable, GlobalChanges
from tests.unit.streams.pipeline.loading import load, problems_in

SOURCES = "sources: {orders: {topic: changes, format: debezium}, others: other}\nprocessors:\n"
SCHEMA = 'format: json, schema: "a STRING, n INT"'
TOTALS = "SELECT a AS key, sum(n) AS n FROM input GROUP BY a"
ROWS = "SELECT key, n FROM input"
NOBODY: Any = SimpleNamespace(open=None)
"""Queries that nobody opens."""


def sql(query: str, id_: str = "Q", from_: str = "[orders]", to: str = "[sink]") -> str:
    return f'- {{id: {id_}, type: sql, query: "{query}", {SCHEMA}, from: {from_}, to: {to}}}\n'


def stores_of(pipeline: Pipeline) -> dict[str, list[str]]:
    return {each.id: [store.name for store in each.stores] for each in pipeline.processors}


def test_groups_keep_the_changes_and_rows_where_the_topic_is_read() -> None:
    assert stores_of(load(SOURCES + sql(TOTALS))) == {
        "Q-rows": ["changes", "changelog"],
        "Q": ["groups", "shape"],
    }
    by_key = "SELECT key, sum(n) AS n FROM input GROUP BY key"
    assert stores_of(load(SOURCES + sql(by_key))) == {
        "Q": ["changes", "changelog", "groups", "shape"]
    }


def test_queries_that_pass_rows_on_pass_deletions_on() -> None:
    pipeline = load(
        SOURCES
        + sql(ROWS, "First", to="[Second]")
        + f'- {{id: Second, type: sql, query: "{ROWS}", {SCHEMA}, to: [sink]}}\n'
    )
    first, second = pipeline.processors
    for processor in (first, second):
        assert isinstance(processor.spec, SqlSpec)
        assert processor.spec.changelog
        assert set(processor.gives.values()) == {ArcKind.UPSERTS}
    assert stores_of(pipeline) == {"First": ["changes"], "Second": []}
    assert pipeline.kind_of_source("changes", first) is ArcKind.UPSERTS


def test_parts_of_a_query_read_the_rows() -> None:
    pipeline = load(SOURCES + sql(f"SELECT key, n + 1 AS n FROM (SELECT key, n FROM ({TOTALS}))"))
    assert stores_of(pipeline)["Q-rows"][:2] == ["changes", "changelog"]


def test_tables_of_the_topic_have_the_rows() -> None:
    text = (
        SOURCES.replace("others: other", "others: {topic: other, format: debezium}")
        + f'- {{id: Q, type: sql, query: "{ROWS}", {SCHEMA}, to: [sink],\n'
        "  tables: {t: {topic: orders}, h: {topic: others, history: 1 h}}}\n"
    )
    pipeline = load(text)
    assert stores_of(pipeline) == {"Q": ["table-t", "table-h-history", "changes-t", "changes-h"]}
    unit = replicas(pipeline)[0]
    made = [
        node.supplier()
        for node in group_of(unit, UserCode(), NOBODY).nodes
        if isinstance(node, ProcessorNode)
    ]
    assert sorted(type(each).__name__ for each in made) == [
        *["ChangesOfTable"] * 2,
        "SparkProcessor",
    ]
    history = [each.history_ms for each in made if isinstance(each, ChangesOfTable)]
    assert sorted(history) == [3_600_000, float("inf")]
    assert issubclass(ChangesOfTable, LookupTable)
    assert issubclass(ChangesOfQuery, MixedProcessor)


def test_global_tables_have_the_rows() -> None:
    text = (
        SOURCES + f'- {{id: Q, type: sql, query: "{ROWS}", {SCHEMA}, to: [sink],\n'
        "  tables: {t: {topic: orders, global: true}}}\n"
    )
    unit, plain = (
        replicas(load(each))[0] for each in (text, text.replace(", format: debezium", ""))
    )
    (store,) = group_of(unit, UserCode(), NOBODY).global_stores
    (filler,) = (node for node in store.group.nodes if isinstance(node, ProcessorNode))
    assert isinstance(filler.supplier(), GlobalChanges)
    assert sharing_key(unit) != sharing_key(plain)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("- {id: Q, type: forward, from: [orders], to: [sink]}\n", "only queries of type: sql get"),
        (
            '- {id: Q, type: "shop:Class", from: [orders], to: [sink]}\n',
            "a class gets the changes with value: debezium_changes, from a source without format",
        ),
        (
            f'- {{id: Q, type: dataframe, function: "shop:f", {SCHEMA}, from: [orders], '
            "to: [sink]}\n",
            "only queries of type: sql get the rows",
        ),
        (sql(ROWS, from_="[orders, others]"), "it reads more than one input, and one of them has"),
        (
            sql("SELECT a AS key, n FROM input"),
            'it passes the rows of the table "orders" on, but gives another key, so nothing would '
            "tell which row a deletion is of: select key as it is, or read the changes as a stream",
        ),
        (sql("SELECT n FROM input"), "gives no column key"),
        (sql("SELECT key, explode(array(n)) AS n FROM input"), "gives several rows for one key"),
        (
            sql("SELECT session_window.start AS key, sum(n) AS n FROM input GROUP BY "
                "session_window(timestamp, '1 hour')"),
            "which replace former ones at any time. Rows cannot be taken out of sessions",
        ),
        (sql("SELECT DISTINCT a AS key, n FROM input"), "groups by n, which its column key"),
        (
            sql("SELECT o.key, o.n FROM orders o JOIN others p ON o.key = p.key AND p.timestamp "
                "BETWEEN o.timestamp AND o.timestamp + INTERVAL 1 HOUR", from_="[orders, others]"),
            "it joins inputs, and one of them has format: debezium",
        ),
    ],
)  # fmt: skip
def test_who_cannot_read_the_rows_is_refused(entry: str, words: str) -> None:
    assert any(f'"Q": {words}' in each or words in each for each in problems_in(SOURCES + entry))


def test_an_unknown_format_is_refused() -> None:
    (problem,) = problems_in(SOURCES.replace("debezium", "canal") + sql(ROWS))
    assert 'format must be "debezium", got the text "canal"' in problem


def test_the_time_of_a_deletion_must_be_known() -> None:
    def timed(more: str) -> str:
        at = f"format: debezium, timestamp: {{field: source.ts_ms{more}}}"
        return SOURCES.replace("format: debezium", at) + sql(ROWS)

    (problem,) = problems_in(timed(""))
    assert "with debezium, a null value deletes a key, and has no field with a time" in problem
    load(timed(", on_invalid: partition_time"))

"""`type: sql` and `type: dataframe` in pipeline.yaml."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_pipeline.common.config.table_settings import TableSettings
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import DataFrameSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.dataframe import DataFrame
from kafka_pipeline.streams.pipeline.kinds.sql import Sql
from kafka_pipeline.streams.sql.spec import QuerySpec
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in

WITH_DATABASE = replace(CONFIG, tables=TableSettings(jdbc_urls=("jdbc:x:y",)))


def node_of(text: str) -> PipelineProcessor:
    return load(text, WITH_DATABASE).processor("P")


def spec_of(text: str) -> QuerySpec:
    match node_of(text).spec:
        case SqlSpec() as spec:
            return Sql().query(spec)
        case DataFrameSpec() as spec:
            return DataFrame().query(spec)
    raise AssertionError("not a query")


def test_sql_is_a_query_on_text() -> None:
    text = "[{id: P, type: sql, query: SELECT value FROM input, to: [sink]}]"
    assert isinstance(node_of(text).spec, SqlSpec)
    assert not node_of(text).is_stateful
    assert spec_of(text) == QuerySpec("SELECT value FROM input", inputs=("source",))


def test_all_that_can_be_said_about_a_query() -> None:
    text = """
- id: P
  type: sql
  query: SELECT * FROM input JOIN airports USING (code)
  format: json
  schema: code STRING, n INT
  tables:
    airports:
      {format: csv, path: a.csv, schema: code STRING, options: {header: true, nullValue: 1.10}}
    rates: {format: jdbc, options: {url: "jdbc:x:y", fetchsize: 10}, refresh_interval: 10 min}
  to: [sink]
"""
    assert spec_of(text) == QuerySpec(
        "SELECT * FROM input JOIN airports USING (code)",
        format="json",
        schema="code STRING, n INT",
        tables={
            "airports": {
                "format": "csv",
                "path": "a.csv",
                "schema": "code STRING",
                "options": {"header": "true", "nullValue": "1.10"},
                "refresh_s": 0,
            },
            "rates": {
                "format": "jdbc",
                "path": "",
                "schema": "",
                "options": {"url": "jdbc:x:y", "fetchsize": "10"},
                "refresh_s": 600,
            },
        },
        inputs=("source",),
    )


def test_query_knows_the_names_of_its_inputs() -> None:
    text = """
sources: {orders: o, my.orders-2: p}
processors:
- {id: A, type: forward, from: [orders], to: [P]}
- {id: P, type: sql, from: [my.orders-2], query: q, to: [sink]}
"""
    assert spec_of(text).inputs == ("my.orders-2", "A")


def test_table_with_the_name_of_an_input_is_refused() -> None:
    text = """
sources: {orders: o}
processors:
- {id: P, type: sql, from: [orders], query: q, tables: {Orders: {format: csv, path: a}}, to: [sink]}
"""
    (found,) = problems_in(text)
    assert '"P": table "Orders" has the name of the input "orders"' in found
    # A function has no views of single inputs.
    load(text.replace("type: sql", "type: dataframe").replace("query: q", 'function: "shop:f"'))


def test_dataframe_is_a_function_with_a_config() -> None:
    text = '[{id: P, type: dataframe, function: "shop:clean", config: {low: 1}, to: [sink]}]'
    assert spec_of(text) == QuerySpec(function="shop:clean", config={"low": 1})


def test_spec_survives_its_way_to_the_driver() -> None:
    spec = QuerySpec(
        "q", "f", "json", "a INT", True, {"t": {"format": "csv"}}, {"a": [1, None]}, inputs=("i",)
    )
    assert QuerySpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("type: sql", '1:3: missing key "query" (a SELECT over the view input,'),
        ("type: sql, query: q, config: {a: 1}", "1:52: sql takes no config"),
        ("type: sql, query: q, function: a.b:c", 'unknown key "function"'),
        ("type: sql, query: q, serdes: {}", 'unknown key "serdes"'),
        ("type: sql, query: q, format: xml", 'format must be "string", "binary", "json" or "avro"'),
        ("type: sql, query: q, format: json", 'missing key "schema"'),
        ("type: sql, query: q, schema: a INT", "schema belongs to format: json"),
        ("type: sql, query: q, lenient: true", "lenient belongs to format: json"),
        ("type: sql, query: q, tables: {t: csv}", "a table must be a map with format"),
        ("type: sql, query: q, tables: {t: {path: /x}}", 'missing key "format"'),
        (
            "type: sql, query: q, tables: {input: {format: csv, path: a}}",
            "cannot be the name of a table",
        ),
        (
            "type: sql, query: q, tables: {t: {format: csv, path: a}, T: {format: csv, path: b}}",
            '"T" and "t" are one table to Spark: rename one',
        ),
        (
            "type: sql, query: q, tables: {t: {format: csv, path: a, refresh_interval: often}}",
            '"10 min"',
        ),
        (
            "type: sql, query: q, tables: {t: {format: csv, path: a, options: {sep: []}}}",
            "must be one value",
        ),
        ("type: dataframe", 'missing key "function"'),
        ("type: dataframe, function: clean", '"clean" names no code'),
        ('type: dataframe, function: "else.where:clean"', 'module "else.where" is not on the list'),
    ],
)
def test_mistakes_are_reported(keys: str, problem: str) -> None:
    found = problems_in(f"- {{id: P, to: [sink], {keys}}}")
    assert len(found) == 1
    assert problem in found[0]


def test_sources_with_serdes_are_refused() -> None:
    text = """
sources: {s: {topic: t, value: string}}
processors: [{id: P, type: sql, query: q, from: [s], to: [sink]}]
"""
    assert "a query takes records as they are" in problems_in(text)[0]


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (
            "{t: {format: csv, path: a}, rates: {format: jdbc, options: {url: 'jdbc:x:z'}}}",
            '"P": table "rates": config.yaml does not allow jdbc',
        ),
        ("{t: {format: org.foo.Bar}}", '"P": table "t": config.yaml does not allow the format'),
    ],
)
@pytest.mark.parametrize("keys", ["type: sql, query: q", 'type: dataframe, function: "shop:f"'])
def test_tables_that_config_yaml_does_not_allow_are_reported_without_a_spark(
    keys: str, tables: str, problem: str
) -> None:
    (found,) = problems_in(f"- {{id: P, to: [sink], {keys}, tables: {tables}}}")
    assert found.startswith("1:8: ")
    assert problem in found

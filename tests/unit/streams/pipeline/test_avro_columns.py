"""Queries over Avro in pipeline.yaml: their columns, who reads what, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import SourceSpec, SqlSpec
from kafka_pipeline.streams.schema_registry import SchemaRegistry, avro
from tests.schema_registry import StandIn, standing_in
from tests.unit.streams.pipeline.loading import CONFIG, load, problems_in

ROW = {"id": "int", "name": "string"}
SCHEMA = "`id` INT, `name` STRING"
AVRO = SchemaSerde(kind="avro")


def record(fields: dict[str, Any], name: str = "Row") -> dict[str, Any]:
    listed = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def with_registry(url: str) -> Config:
    return replace(CONFIG, schema_registry=RegistrySettings(url))


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with standing_in() as found:
        yield found


Register = Callable[..., None]


@pytest.fixture
def register(stand_in: StandIn) -> Register:
    def to_subject(subject: str, **fields: Any) -> None:
        stand_in.post(f"/subjects/{subject}/versions", {"schema": json.dumps(record(fields))})

    return to_subject


def spec_of(text: str, stand_in: StandIn, id_: str = "Q") -> tuple[SqlSpec, dict[str, SourceSpec]]:
    processor = load(text, with_registry(stand_in.url)).processor(id_)
    assert isinstance(processor.spec, SqlSpec)
    return processor.spec, dict(processor.sources)


def sql(query: str, rest: str = "", to: str = "[sink]", id_: str = "Q") -> str:
    return f'- {{id: {id_}, type: sql, format: avro, query: "{query}", to: {to}{rest}}}\n'


def test_columns_are_those_of_the_latest_version_which_stays_until_the_next_load(
    stand_in: StandIn, register: Register
) -> None:
    register("in-value", **ROW)
    text = "processors:\n" + sql("SELECT id FROM input")
    spec, sources = spec_of(text, stand_in)
    assert (spec.format, spec.schema, spec.schema_sinks) == ("json", SCHEMA, ("sink",))
    assert sources == {"source": SourceSpec(value=SchemaSerde(kind="avro", version=1))}
    register("in-value", **ROW, more="long")
    spec, sources = spec_of(text, stand_in)
    assert spec.schema == f"{SCHEMA}, `more` BIGINT"
    assert sources["source"].value == SchemaSerde(kind="avro", version=2)


def test_source_names_subject_and_version(stand_in: StandIn, register: Register) -> None:
    register("shop.Order", **ROW)
    register("shop.Order", **ROW, more="long")
    source = "sources: {o: {topic: orders, value: {avro: {subject: shop.Order, version: 1}}}}\n"
    text = source + "processors:\n" + sql("SELECT id FROM o", ", from: [o], out_value: json")
    spec, sources = spec_of(text, stand_in)
    assert (spec.schema, spec.schema_sinks) == (SCHEMA, ())
    pinned = SchemaSerde(kind="avro", subject="shop.Order", version=1)
    assert sources == {"o": SourceSpec(value=pinned)}


def test_rows_between_processors_and_stages_are_json(stand_in: StandIn, register: Register) -> None:
    register("in-value", **ROW)
    query = (
        "SELECT n AS key, count(*) AS many FROM (SELECT name, max(id) AS n FROM input "
        "GROUP BY name) GROUP BY n"
    )
    text = (
        "processors:\n"
        + sql("SELECT id, name FROM input", to="[Q]", id_="First")
        + sql(query, ", schema: 'id INT, name STRING'")
    )
    made = load(text, with_registry(stand_in.url))
    first = made.processor("First").spec
    assert isinstance(first, SqlSpec)
    assert (first.schema, first.schema_sinks) == (SCHEMA, ())
    last = made.processor("Q").spec
    assert isinstance(last, SqlSpec)
    assert last.schema_sinks == ("sink",)
    whole = "processors:\n" + sql(query)
    last, _ = spec_of(whole, stand_in)
    (inner,) = last.stages.values()
    assert inner.schema == SCHEMA


def test_joined_inputs_have_their_own_columns(stand_in: StandIn, register: Register) -> None:
    register("left-value", **ROW)
    register("right-value", other="double")
    text = (
        "sources: {l: left, r: right, j: {topic: plain, value: json}}\nprocessors:\n"
        + sql("SELECT l.key, other FROM l JOIN r ON l.key = r.key", ", from: [l, r], ttl: 1 h")
        + sql("SELECT l.key, a FROM l JOIN j ON l.key = j.key",
              ", from: [l, j], ttl: 1 h, schema: {j: a INT}", id_="Mixed")
    )  # fmt: skip
    spec, _ = spec_of(text, stand_in)
    assert spec.schemas == {"l": SCHEMA, "r": "`other` DOUBLE"}
    spec, sources = spec_of(text, stand_in, "Mixed")
    assert spec.schemas == {"l": SCHEMA, "j": "a INT"}
    assert [*sources] == ["l"]


def test_change_events_have_the_columns_of_their_rows_unless_given(
    stand_in: StandIn, register: Register
) -> None:
    register("t-value", op="string", after=["null", record(ROW, "Value")])
    text = (
        "sources: {t: {topic: t, format: debezium}}\nprocessors:\n"
        + sql("SELECT key, id FROM t", ", from: [t]")
        + sql("SELECT key, id FROM t", ", from: [t], schema: id INT", id_="Given")
    )
    spec, sources = spec_of(text, stand_in)
    assert spec.schema == SCHEMA
    assert sources == {"t": SourceSpec(key=AVRO, value=AVRO, format="debezium")}
    assert spec_of(text, stand_in, "Given")[0].schema == "id INT"


def test_tables_have_columns_too(stand_in: StandIn, register: Register) -> None:
    register("in-value", **ROW)
    register("people-value", age="int")
    text = "sources: {p: {topic: people, key: avro}}\nprocessors:\n" + sql(
        "SELECT age FROM input i JOIN t ON i.key = t.key JOIN g ON g.age = i.id",
        ", tables: {g: {topic: p, global: true}}",
    ).replace(" JOIN t ON i.key = t.key", "")
    spec, _ = spec_of(text, stand_in)
    assert spec.topic_tables["g"].schema == "`age` INT"
    pinned = SchemaSerde(kind="avro", version=1)
    assert spec.global_serdes == {"table-g": (AVRO, pinned)}


def test_file_takes_the_place_of_a_registry(tmp_path: Any) -> None:
    from kafka_pipeline.streams.pipeline.load import load_pipeline

    pytest.importorskip("fastavro", reason="needs the extra schemaregistry")
    (tmp_path / "row.avsc").write_text(json.dumps(record(ROW)))
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "sources: {o: {topic: orders, value: {avro: {schema: row.avsc}}}}\nprocessors:\n"
        + sql("SELECT id FROM o", ", from: [o], out_value: json")
    )
    spec = load_pipeline(file, CONFIG).processor("Q").spec
    assert isinstance(spec, SqlSpec)
    assert spec.schema == SCHEMA


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (sql("SELECT id FROM input"), '2:8: "source": the columns of subject in-value: the schema '
         "registry at {url} refuses what subject in-value needs: Schema not found"),
        ("- {id: Q, type: sql, format: json, schema: a INT, query: SELECT a FROM o, from: [o], "
         "to: [sink]}\n", '3:82: source "o" has value: avro, so "Q" must say format: avro'),
        (sql("SELECT a FROM s", ", from: [s]"), "a query takes records as they are: source "
         '"s" may say value: avro or json, and it says string'),
        (sql("SELECT a FROM j", ", from: [j]"), '"Q": missing key "schema": none of its inputs is'),
        (sql("SELECT id FROM r", ", from: [r], schema: id INT"), 'leave the schema of "r" out'),
        (sql("SELECT id FROM input", ", from: [r, x]"), '"Q": its inputs have different columns'),
        (sql("SELECT id FROM r", ", from: [r], lenient: true"), "lenient belongs to format: json"),
        ("- {id: Q, type: sql, query: SELECT key, value FROM input, out_value: avro, to: [sink]}\n",
         "out_value belongs to format: json or avro"),
        (sql("SELECT id FROM r", ", from: [r], out_value: string"), "out_value must be"),
        (sql("SELECT id FROM r", ", from: [r], out_value: {protobuf: {message: 'a:B'}}"), "out_va"),
        (sql("SELECT id FROM v", ", from: [v]"), "the schema registry at {url} refuses what "
         "subject rows-value needs: Schema not found"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_place(
    text: str, words: str, stand_in: StandIn, register: Register
) -> None:
    register("rows-value", **ROW)
    register("others-value", x="int")
    sources = (
        "sources: {o: {topic: o, value: avro}, s: {topic: s, value: string}, r: rows, "
        "x: others, j: {topic: j, value: json}, "
        "v: {topic: rows, value: {avro: {version: 9}}}}\n"
    )
    given = text if "FROM input" in text and "from:" not in text else sources + text
    given = given.replace("- {id", "processors:\n- {id", 1)
    problems = problems_in(given, with_registry(stand_in.url))
    assert any(words.format(url=stand_in.url) in each for each in problems), problems


def test_registry_that_does_not_answer_is_a_problem_of_the_source() -> None:
    with standing_in() as stand_in:
        url = stand_in.url
    (problem,) = problems_in("processors:\n" + sql("SELECT id FROM input"), with_registry(url))
    assert problem.endswith(f"the schema registry at {url} does not answer: ConnectError")
    (problem,) = problems_in("processors:\n" + sql("SELECT id FROM input"))
    assert "there is no registry: give its address in config.yaml" in problem


def test_registry_is_asked_once_for_each_source(stand_in: StandIn, register: Register) -> None:
    register("in-value", **ROW)
    text = sql("SELECT id FROM input", id_="A") + sql("SELECT id FROM input", id_="B")
    load("processors:\n" + text, with_registry(stand_in.url))
    assert stand_in.requests == ["GET /subjects/in-value/versions/latest"]
    assert avro(SchemaRegistry(stand_in.url), "in-value").deserialize(
        b"\0\0\0\0\1\x0e\x02x"
    ) == {"id": 7, "name": "x"}  # fmt: skip

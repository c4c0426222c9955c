"""The schema of a source: which queries have its columns, and what is refused."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.pipelines.specs import DataFrameSpec, SqlSpec
from tests.unit.streams.pipeline.loading import load, problems_in

SOURCES = """
sources:
  bids: {topic: b, schema: "auction INT, price DOUBLE"}
  offers: {topic: f, schema: "auction INT, price DOUBLE"}
  auctions: {topic: a, schema: "id INT, city STRING"}
  plain: p
processors:
"""
JOIN = "SELECT a.key, b.price FROM auctions a JOIN bids b ON a.id = b.auction"


def sql(query: str, rest: str, id_: str = "Q", to: str = "sink") -> str:
    return f"- {{id: {id_}, type: sql, format: json, query: '{query}', to: [{to}], {rest}}}\n"


def spec_of(text: str, id_: str = "Q") -> SqlSpec:
    spec = load(SOURCES + text).processor(id_).spec
    assert isinstance(spec, SqlSpec)
    return spec


@pytest.mark.parametrize(
    ("inputs", "schema"),
    [
        ("from: [bids]", "auction INT, price DOUBLE"),
        ("from: [bids, offers]", "auction INT, price DOUBLE"),
        ("from: [bids], schema: price STRING", "price STRING"),
        ("from: [plain], schema: n INT", "n INT"),
    ],
)
def test_query_has_the_columns_of_its_sources_unless_it_gives_some(
    inputs: str, schema: str
) -> None:
    spec = spec_of(sql("SELECT price FROM input", inputs))
    assert (spec.schema, spec.schemas) == (schema, {})


def test_sides_of_a_join_have_their_columns_and_one_may_be_given() -> None:
    ids = {"bids": "auction INT, price DOUBLE", "auctions": "id INT, city STRING"}
    assert spec_of(sql(JOIN, "from: [bids, auctions], ttl: none")).schemas == ids
    given = spec_of(sql(JOIN, "from: [bids, auctions], ttl: none, schema: {auctions: id INT}"))
    assert given.schemas == {**ids, "auctions": "id INT"}
    # Two sides with the same columns need one schema.
    same = JOIN.replace("auctions", "offers").replace("a.id", "a.auction")
    assert spec_of(sql(same, "from: [bids, offers], ttl: none")).schema == ids["bids"]


def test_each_stage_has_the_columns_of_what_it_reads() -> None:
    text = sql(
        "SELECT city AS key, max(price) AS most FROM ("
        "SELECT a.city, b.price FROM auctions a JOIN bids b ON a.id = b.auction"
        ") j GROUP BY city",
        "from: [bids, auctions], ttl: none",
    )
    joined = spec_of(text, "Q.j").schemas
    assert joined["auctions"] == "id INT, city STRING"
    # What groups them finds the types of its columns by the query of the stage.
    assert spec_of(text).stages["Q.j"].schemas == joined


def test_table_of_a_topic_has_the_columns_of_its_source() -> None:
    text = sql(
        "SELECT i.key, c.city FROM bids i JOIN towns c ON i.key = c.key",
        "from: [bids], tables: {towns: {topic: auctions}}",
    )
    assert spec_of(text).topic_tables["towns"].schema == "id INT, city STRING"
    own = text.replace("topic: auctions", "topic: auctions, schema: city STRING")
    assert spec_of(own).topic_tables["towns"].schema == "city STRING"


def test_function_has_the_columns_of_its_source() -> None:
    text = '- {id: F, type: dataframe, function: "shop:f", format: json, from: [bids], to: [sink]}'
    spec = load(SOURCES + text).processor("F").spec
    assert isinstance(spec, DataFrameSpec)
    assert spec.schema == "auction INT, price DOUBLE"


def test_text_is_read_as_text_whatever_the_source_says() -> None:
    text = '- {id: Q, type: sql, query: "SELECT value FROM input", from: [bids], to: [sink]}'
    assert (spec_of(text).format, spec_of(text).schema) == ("string", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            sql("SELECT a FROM plain", "from: [plain]"),
            'missing key "schema" (the columns of the values, such as "name STRING, price '
            'DOUBLE"): under sources, none is given for plain',
        ),
        (
            sql("SELECT a FROM input", "from: [bids, plain]"),
            "under sources, none is given for plain",
        ),
        (
            sql("SELECT price FROM bids", "from: [bids]", "First", "Q")
            + sql("SELECT price FROM First", ""),
            '"Q": missing key "schema"',
        ),
        (
            sql("SELECT key FROM input", "from: [bids, auctions]"),
            "its inputs have different columns (bids and auctions): read each in a query of its",
        ),
        (
            sql(
                JOIN.replace("bids", "plain"),
                "from: [plain, auctions], ttl: none, schema: {auctions: id INT}",
            ),
            "schema has auctions, but the inputs are plain and auctions",
        ),
        (sql("SELECT price FROM bids", "from: [bids], schema: 5"), "schema must be a string"),
    ],
)
def test_inputs_without_columns_and_with_others_are_refused(text: str, problem: str) -> None:
    assert [problem in each for each in problems_in(SOURCES + text)] == [True]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("schema: 5", "schema must be a string"),
        ('schema: ""', "schema is empty"),
        ("schema: a INT, value: string", "say value: json, or leave it out"),
        ("schema: a INT, value: avro", "say value: json, or leave it out"),
    ],
)
def test_schema_of_a_source_is_that_of_json(source: str, problem: str) -> None:
    text = f"""
sources: {{s: {{topic: t, {source}}}}}
processors:
- {{id: P, type: forward, from: [s], to: [sink]}}
"""
    assert any(problem in each for each in problems_in(text))

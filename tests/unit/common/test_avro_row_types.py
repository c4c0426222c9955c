"""Rows that msgspec reads become the same Avro as those that are converted field by field."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.kafka.avro_codec import parse_text
from kafka_pipeline.common.kafka.avro_row_types import row_reader
from kafka_pipeline.common.kafka.avro_rows import AvroRowWriter
from kafka_pipeline.common.kafka.misfit import MisfitError
from kafka_pipeline.common.kafka.schema_registry import SchemaRegistry, client_of

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "class", "type": "int"}]}
COLORS = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "leaf", "type": "long"},
        {"name": "more", "type": ["null", "Tree"], "default": None},
    ],
}
SCALAR = [*["boolean", "int", "long", "float", "double", "string", "bytes"], COLORS]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
]
TYPES: list[Any] = [
    *SCALAR,
    *LOGICAL,
    INNER,
    TREE,
    "null",
    *(["null", each] for each in (*SCALAR, *LOGICAL, INNER)),
    ["string", "null"],
    ["null", "int", "string"],
    {"type": "array", "items": "double"},
    {"type": "array", "items": ["null", INNER]},
    {"type": "map", "values": "int"},
    {"type": "map", "values": LOGICAL[0]},
]
NUMBERS = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63) - 1, 10**30]
TEXTS = ["", "red", "NaN", "-Infinity", "AQ==", "2024-02-29", "2024-02-29T12:00:00.5Z", "é\u2028"]
RAW = ["1.0", "1e2", "2.5", "1e38", "3.5e38", "1e400", "-0", "-0.0", "0.1", '"\\ud800"']
SIMPLE = st.sampled_from(
    [*map(str, NUMBERS), *map(json.dumps, TEXTS), *RAW, "true", "false", "null"]
)


def texts_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return texts of JSON with others in them."""
    keys = st.sampled_from(["f", "class", "leaf", "more", "member_int", "member_string", "other"])
    objects = st.dictionaries(keys, inner, max_size=3).map(
        lambda found: "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in found.items()) + "}"
    )
    return objects | st.lists(inner, max_size=3).map(lambda found: f"[{','.join(found)}]")


VALUES = st.recursive(SIMPLE, texts_of, max_leaves=4)
DEFAULTS: dict[str, Any] = {"int": 7, "string": "x", "bytes": "\x01", "double": 0.5}
ROWS = st.lists(st.tuples(st.sampled_from(["f", "g", "h"]), VALUES), max_size=3)


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Return the schema of a row with up to two fields, one of which may have a default."""
    fields = [{"name": "f", "type": draw(st.sampled_from(TYPES))}]
    second = draw(st.sampled_from([None, *DEFAULTS, "nullable"]))
    if second == "nullable":
        fields.append({"name": "g", "type": ["null", "long"], "default": None})
    elif second is not None:
        fields.append({"name": "g", "type": second, "default": DEFAULTS[second]})
    return {"type": "record", "name": "Row", "fields": fields}


def written(writer: AvroRowWriter, row: bytes) -> bytes | str:
    try:
        return writer(row)
    except MisfitError as error:
        return str(error)


@given(schemas(), ROWS)
def test_a_row_is_written_or_refused_as_field_by_field(
    schema: dict[str, Any], row: list[tuple[str, str]]
) -> None:
    client = client_of(SchemaRegistry(f"mock://{uuid4()}"))
    fast, slow = (
        AvroRowWriter(client, "rows-value", json.dumps(schema), register=True) for _ in range(2)
    )
    slow._find()
    slow._reader = None
    text = ("{" + ",".join(f'"{name}":{value}' for name, value in dict(row).items()) + "}").encode()
    assert written(fast, text) == written(slow, text)


@pytest.mark.parametrize(
    ("type_", "is_checked"),
    [("long", True), (["null", "string"], True), (INNER, True), (LOGICAL[0], False), (TREE, False)],
)
def test_only_values_that_python_converts_are_looked_at_again(type_: Any, is_checked: bool) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "f", "type": type_}]}
    reader = row_reader(parse_text(json.dumps(schema)))
    assert reader is not None
    assert reader.is_checked == is_checked

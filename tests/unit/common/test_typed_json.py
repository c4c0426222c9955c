"""JSON of dataclasses: values survive writing and reading, and other data is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline.common.specs import (
    SPECS,
    ClassSpec,
    FieldTime,
    SourceSpec,
    SqlSpec,
    StoreSpec,
    SumSpec,
    TableSpec,
    TopologySpec,
)
from kafka_pipeline.common.typed_json import as_json, from_json


def test_fields_with_their_defaults_are_left_out() -> None:
    spec = SqlSpec(query="q", tables={"t": TableSpec(format="csv", refresh_s=60)})
    assert as_json(spec) == {"query": "q", "tables": {"t": {"format": "csv", "refresh_s": 60}}}
    assert as_json(SumSpec()) == {}
    assert from_json(SqlSpec, as_json(spec), "spec") == spec


@pytest.mark.parametrize("type_", SPECS)
def test_a_spec_is_read_only_from_an_object(type_: str) -> None:
    no_objects: list[object] = [[], "forward", None, 1]
    for data in no_objects:
        with pytest.raises(ValueError, match="spec is not a JSON object"):
            from_json(SPECS[type_], data, "spec")


@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        (SumSpec, {"constant": True}, "constant is not an integer"),
        (SumSpec, {"constant": "1"}, "constant is not an integer"),
        (SumSpec, {"buffered_records": 0}, "buffered_records is not an integer from 1 up"),
        (SumSpec, {"max_task_idle_ms": -2}, "max_task_idle_ms is not an integer from -1 up"),
        (SumSpec, {"max_process_time_ms": 1.5}, "max_process_time_ms is not an integer"),
        (SumSpec, {"code": "a:b"}, "spec has the unknown field code"),
        (ClassSpec, {}, "spec.code is missing"),
        (ClassSpec, {"code": "\ud800"}, "surrogates not allowed"),
        (ClassSpec, {"code": "a:b", "stores": {}}, "stores is not a list"),
        (ClassSpec, {"code": "a:b", "stores": [{"name": "../x"}]}, "name has the character"),
        (
            ClassSpec,
            {"code": "a:b", "stores": [{"name": "x", "type": "heap"}]},
            "type is not one",
        ),
        (
            ClassSpec,
            {"code": "a:b", "stores": [{"name": "x", "logged": 1}]},
            "logged is not true",
        ),
        (ClassSpec, {"code": "a:b", "asynchronous": {"ordered": 1}}, "ordered"),
        (SqlSpec, {"query": "q", "tables": {"t": {"format": "csv", "options": {"a": 1}}}}, "a is"),
        (TopologySpec, {"code": "a:b", "internal": {"x": 0}}, "x"),
        (TopologySpec, {"code": "a:b", "followed": {"x": ".."}}, "refuses"),
        (SourceSpec, {"timestamp": "clock"}, "timestamp"),
        (FieldTime, {"field": "at", "unit": "h"}, "unit is not one of ms, s, us, iso8601"),
        (StoreSpec, {"name": "x", "retention_ms": -1}, "retention_ms"),
    ],
)
def test_data_that_does_not_fit_the_type_is_refused(type_: Any, data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(type_, data, "spec")

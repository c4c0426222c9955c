"""JSON of dataclasses: values survive writing and reading, and other data is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline.common.pipelines.lookup_tables import TableSpec
from kafka_pipeline.common.pipelines.specs import (
    SPECS,
    ClassSpec,
    FieldTime,
    SourceSpec,
    SqlSpec,
    SumSpec,
    TopologySpec,
)
from kafka_pipeline.common.pipelines.store_specs import StoreSpec
from kafka_pipeline.common.typed_json import Name, as_json, dump, from_json, parse


def test_fields_with_their_defaults_are_left_out() -> None:
    spec = SqlSpec(query="q", tables={"t": TableSpec(format="csv", refresh_s=60)})
    assert as_json(spec) == {"query": "q", "tables": {"t": {"format": "csv", "refresh_s": 60}}}
    assert as_json(SumSpec()) == {}
    assert from_json(SqlSpec, as_json(spec), "spec") == spec


@pytest.mark.parametrize("type_", SPECS)
def test_a_spec_is_read_only_from_an_object(type_: str) -> None:
    no_objects: list[object] = [[], "forward", None, 1]
    for data in no_objects:
        with pytest.raises(ValueError, match="spec: Expected `object`, got"):
            from_json(SPECS[type_], data, "spec")


@pytest.mark.parametrize(
    ("type_", "data", "message"),
    [
        (SumSpec, {"constant": True}, r"spec: Expected `int`, got `bool` - at `\$.constant`"),
        (SumSpec, {"constant": "1"}, "got `str`"),
        (SumSpec, {"buffered_records": 0}, r"`int` >= 1 - at `\$.buffered_records`"),
        (SumSpec, {"max_task_idle_ms": -2}, "`int` >= -1"),
        (SumSpec, {"max_process_time_ms": 1.5}, "got `float`"),
        (SumSpec, {"code": "a:b"}, "unknown field `code`"),
        (ClassSpec, {}, "missing required field `code`"),
        (ClassSpec, {"code": "a:b", "stores": {}}, "Expected `array`, got `object`"),
        (
            ClassSpec,
            {"code": "a:b", "stores": [{"name": "../x"}]},
            r"at `\$.stores\[0\].name`",
        ),
        (
            ClassSpec,
            {"code": "a:b", "stores": [{"name": "x", "type": "heap"}]},
            "Invalid enum value 'heap'",
        ),
        (
            ClassSpec,
            {"code": "a:b", "stores": [{"name": "x", "logged": 1}]},
            "Expected `bool`, got `int`",
        ),
        (ClassSpec, {"code": "a:b", "asynchronous": {"ordered": 1}}, "ordered"),
        (
            SqlSpec,
            {"query": "q", "tables": {"t": {"format": "csv", "options": {"a": 1}}}},
            r"at `\$.tables",
        ),
        (TopologySpec, {"code": "a:b", "internal": {"x": 0}}, ">= 1"),
        (TopologySpec, {"code": "a:b", "followed": {"x": ".."}}, r"at `\$.followed\[\.\.\.\]`"),
        (SourceSpec, {"timestamp": "clock"}, "timestamp"),
        (FieldTime, {"field": "at", "unit": "h"}, r"Invalid enum value 'h' - at `\$.unit`"),
        (StoreSpec, {"name": "x", "retention_ms": -1}, "retention_ms"),
    ],
)
def test_data_that_does_not_fit_the_type_is_refused(type_: Any, data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_json(type_, data, "spec")


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a\n", "a" * 250, "\u00e4"])
def test_a_name_that_kafka_refuses_is_refused(name: str) -> None:
    assert from_json(Name, "A.b_c-9", "it") == "A.b_c-9"
    with pytest.raises(ValueError, match="it: Expected a name of 1 to 249 letters"):
        from_json(Name, name, "it")


def test_config_may_have_numbers_that_json_does_not_have() -> None:
    """YAML has them, and records of former versions too."""
    spec = ClassSpec(code="a:b", config={"most": float("inf"), "digits": 10**30})
    assert from_json(ClassSpec, parse(dump(spec)), "spec") == spec
    assert parse(b'{"least":-Infinity}') == {"least": float("-inf")}


def test_a_default_is_left_out_if_it_is_only_equal() -> None:
    """Fingerprints of tasks depend on it; msgspec would compare by identity."""
    assert as_json(SqlSpec(query="q", max_process_time_ms=int("300000"))) == {"query": "q"}


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        parse(b'{"code":"\\ud800"}')

"""Avro schemas that cannot read each other."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastavro", reason="needs the extra schemaregistry")

from fastavro import parse_schema

from kafka_pipeline.common.kafka.avro_codec import mismatch

MONEY: dict[str, Any] = {
    "type": "record",
    "name": "Money",
    "fields": [{"name": "cents", "type": "long"}],
}


def schema(*types: Any) -> Any:
    fields = [{"name": f"f{place}", "type": type_} for place, type_ in enumerate(types)]
    return parse_schema({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def test_type_given_by_its_name_is_the_one_that_was_defined() -> None:
    assert mismatch(schema(["null", MONEY], "Money"), schema("null", MONEY)) == ""
    assert mismatch(schema(["null", MONEY], MONEY["name"]), schema("null", "string")) == (
        'field "f1" is record shop.Money, not string'
    )


def test_fault_inside_of_a_type_given_by_its_name_is_found() -> None:
    more = {**MONEY, "fields": [*MONEY["fields"], {"name": "currency", "type": "string"}]}
    items = {"type": "array", "items": "Money"}
    assert mismatch(schema(["null", MONEY, "int"], items), schema(["null", more], items)) == (
        'field "f1.currency" is missing, and has no default'
    )

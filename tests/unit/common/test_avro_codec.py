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


FIXED = {"type": "fixed", "name": "shop.Code", "size": 2}
ENUM = {"type": "enum", "name": "shop.Size", "symbols": ["S", "L"]}


@pytest.mark.parametrize(
    ("wrote", "reads", "fault"),
    [
        (MONEY, {**MONEY, "name": "Price"}, "is record shop.Money, not record shop.Price"),
        (MONEY, {**MONEY, "name": "Price", "aliases": ["Money"]}, ""),
        (MONEY, {**MONEY, "namespace": "bank"}, ""),
        (ENUM, {**ENUM, "name": "shop.Grade"}, "is enum shop.Size, not enum shop.Grade"),
        (ENUM, {**ENUM, "name": "shop.Grade", "aliases": ["shop.Size"]}, ""),
        (
            FIXED,
            {**FIXED, "size": 3},
            "is fixed shop.Code of 2 bytes, not fixed shop.Code of 3 bytes",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {**FIXED, "logicalType": "decimal", "precision": 4, "scale": 2},
            "is decimal(4, 2) in bytes, not in fixed",
        ),
    ],
)
def test_type_has_the_same_name_or_an_alias_and_the_same_size(
    wrote: Any, reads: Any, fault: str
) -> None:
    found = mismatch(schema(wrote), schema(reads))
    assert found == (f'field "f0" {fault}' if fault else "")

"""The registry of types: each has a spec, keys, and a way to be named in pipeline.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_pipeline.common.pipelines.specs import SPECS
from kafka_pipeline.streams.pipeline.kinds.kind import Kind
from kafka_pipeline.streams.pipeline.kinds.registry import KINDS, kind_named

NAMED = {
    "forward": "forward",
    "sum": "sum",
    "count": "count",
    "sql": "sql",
    "dataframe": "dataframe",
    "topology": "topology",
    "table": "table",
    "shop:Class": "class",
}


def test_each_spec_belongs_to_one_type() -> None:
    assert sorted(kind.spec.type for kind in KINDS) == sorted(SPECS)
    assert {kind.spec for kind in KINDS} == set(SPECS.values())


@pytest.mark.parametrize(("text", "type_"), NAMED.items())
def test_a_type_is_found_by_its_text(text: str, type_: str) -> None:
    kind = kind_named(text)
    assert kind is not None
    assert kind.spec is SPECS[type_]


@pytest.mark.parametrize("text", ["class", "FORWARD", "", "sums"])
def test_other_texts_name_no_type(text: str) -> None:
    assert kind_named(text) is None


def test_only_built_in_types_have_turns_without_user_code_and_only_queries_need_spark() -> None:
    assert {kind.spec.type for kind in KINDS if kind.is_inline} == {"forward", "sum", "count"}
    assert {kind.spec.type for kind in KINDS if kind.needs_spark} == {"sql", "dataframe"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.spec.type)
def test_every_key_has_a_name_of_its_own_and_a_line_of_documentation(kind: Kind[Any]) -> None:
    assert len({key.name for key in kind.keys}) == len(kind.keys)
    assert all(key.doc for key in kind.keys)

"""All types of processors; see "A processor type" in docs/contributing.md for how to add one."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.pipelines.specs import ProcessorSpec
from kafka_pipeline.streams.pipeline.kinds.built_in import CountKind, ForwardKind, SumKind
from kafka_pipeline.streams.pipeline.kinds.dataframe import DataFrame
from kafka_pipeline.streams.pipeline.kinds.kind import Kind
from kafka_pipeline.streams.pipeline.kinds.sql import Sql
from kafka_pipeline.streams.pipeline.kinds.table_sink import TableSink
from kafka_pipeline.streams.pipeline.kinds.user_class import UserClass
from kafka_pipeline.streams.pipeline.kinds.user_topology import UserTopology

KINDS: tuple[Kind[Any], ...] = (
    ForwardKind(),
    SumKind(),
    CountKind(),
    Sql(),
    DataFrame(),
    UserTopology(),
    TableSink(),
    UserClass(),
)
_OF_SPEC = {kind.spec: kind for kind in KINDS}


def kind_of(spec: ProcessorSpec) -> Kind[Any]:
    """Return the type that a spec belongs to."""
    return _OF_SPEC[type(spec)]


def kind_named(text: str) -> Kind[Any] | None:
    """Return the type that `type: text` means, or None."""
    for kind in KINDS:
        if kind.is_named(text):
            return kind
    return None

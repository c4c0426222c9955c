"""The built-in types: `forward`, `sum` and `count`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Number, Section
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.specs import DEFAULT_SUM, CountSpec, ForwardSpec, SumSpec
from kafka_pipeline.streams.builtin.count import COUNTS, CountProcessor
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.builtin.sum import SumProcessor
from kafka_pipeline.streams.engine.nodes import Supplier
from kafka_pipeline.streams.pipeline.kinds.kind import Kind, S, Unit, refuse_config
from kafka_pipeline.streams.sql.spec import Queries
from kafka_pipeline.streams.stores import StoreBuilder

_CONSTANT = Number(
    name="constant", doc="what is added", low=-(2**63), high=2**63 - 1, default=DEFAULT_SUM
)


class _BuiltIn(Kind[S]):
    is_inline = True
    takes_records_as_they_are = True


class ForwardKind(_BuiltIn[ForwardSpec]):
    """`type: forward`."""

    spec = ForwardSpec
    doc = "passes records on"

    def read(self, fields: Fields, problems: Problems) -> ForwardSpec:
        refuse_config(self.spec.type, fields, problems)
        return ForwardSpec()

    def supplier(
        self, unit: Unit, spec: ForwardSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        return ForwardProcessor


class SumKind(_BuiltIn[SumSpec]):
    """`type: sum`."""

    spec = SumSpec
    doc = "adds a constant to the value"
    config = Section(name="config", doc="what `sum` adds", keys=(_CONSTANT,))

    def read(self, fields: Fields, problems: Problems) -> SumSpec:
        return SumSpec(constant=fields.submap(self.config).number(_CONSTANT))

    def supplier(
        self, unit: Unit, spec: SumSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        return partial(SumProcessor, constant=spec.constant)


class CountKind(_BuiltIn[CountSpec]):
    """`type: count`."""

    spec = CountSpec
    doc = "how often the key came so far"

    def read(self, fields: Fields, problems: Problems) -> CountSpec:
        refuse_config(self.spec.type, fields, problems)
        return CountSpec()

    def stores(self, spec: CountSpec) -> Sequence[StoreBuilder[Any, Any]]:
        return (COUNTS,)

    def supplier(
        self, unit: Unit, spec: CountSpec, code: UserCode, queries: Queries | None
    ) -> Supplier:
        return CountProcessor

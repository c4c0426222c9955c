"""The calls of queries, wherever their plans come from: each runs the plan with its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from kafka_pipeline.streams.sql.compiled_plan import CompiledPlan
from kafka_pipeline.streams.sql.json_fields import JsonFields
from kafka_pipeline.streams.sql.messages import ends_found, translated
from kafka_pipeline.streams.sql.spec import SparkLostError

Plans = Mapping[str, CompiledPlan]
"""The plans of a query, by the names of the calls that run them."""


class PreparedCalls(ABC):
    """A query that is ready to run. One thread at a time."""

    @property
    @abstractmethod
    def known_plans(self) -> Plans:
        """The plans that ran last, or that will run first."""

    @abstractmethod
    def newest_plans(self) -> Plans:
        """Return the plans for the newest rows of the tables that the query can be run with."""

    def _call(self, name: str, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """Run one of the newest plans. Raises `QueryError` and `SparkLostError`."""
        with translated():
            plan = self.newest_plans().get(name)
            if plan is None or plan.lacks_columns(table):
                raise SparkLostError(
                    "a table has changed, and the query needs or gives other columns now"
                )
            with ends_found():
                return plan.run(table, lookups)


class _CallsOfOneInput(PreparedCalls):
    """The calls of a `SparkQuery`, or another whose records have the columns of one plan."""

    first: ClassVar[str]
    """The name of the call that takes records."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.known_plans[self.first].columns

    @property
    def fields(self) -> JsonFields | None:
        return self.known_plans[self.first].fields


class QueryCalls(_CallsOfOneInput):
    """See `SparkQuery`."""

    first = "run"

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        return self._call("run", table, lookups)

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        return self._call("parts", table, lookups)


class AggregationCalls(_CallsOfOneInput):
    """See `PreparedAggregation`."""

    first = "partial"

    def partial(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        return self._call("partial", table, lookups)

    def merge(self, rows: pa.Table) -> pa.Table:
        return self._call("merge", rows)


class JoinCalls(PreparedCalls):
    """See `PreparedJoin`."""

    @property
    def columns(self) -> tuple[Sequence[str], Sequence[str]]:
        plans = self.known_plans
        return plans["left"].columns, plans["right"].columns

    @property
    def fields(self) -> tuple[JsonFields | None, JsonFields | None]:
        plans = self.known_plans
        return plans["left"].fields, plans["right"].fields

    def left(self, records: pa.Table) -> pa.Table:
        return self._call("left", records)

    def right(self, records: pa.Table) -> pa.Table:
        return self._call("right", records)

    def matches(self, pairs: pa.Table) -> pa.Table:
        return self._call("matches", pairs)

    def results(self, pairs: pa.Table) -> pa.Table:
        return self._call("results", pairs)


class OverCalls(_CallsOfOneInput):
    """See `PreparedOver`."""

    first = "rows"

    def rows(self, records: pa.Table) -> pa.Table:
        return self._call("rows", records)

    def results(self, rows: pa.Table) -> pa.Table:
        return self._call("results", rows)

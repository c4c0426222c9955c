"""The calls of queries, wherever their plans come from: each runs the plan with its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

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


class QueryCalls(PreparedCalls):
    """See `SparkQuery`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """See `SparkQuery`."""
        return self.known_plans["run"].columns

    @property
    def fields(self) -> JsonFields | None:
        """See `SparkQuery`."""
        return self.known_plans["run"].fields

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `SparkQuery`."""
        return self._call("run", table, lookups)

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `SparkQuery`."""
        return self._call("parts", table, lookups)


class AggregationCalls(PreparedCalls):
    """See `PreparedAggregation`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """See `PreparedAggregation`."""
        return self.known_plans["partial"].columns

    @property
    def fields(self) -> JsonFields | None:
        """See `PreparedAggregation`."""
        return self.known_plans["partial"].fields

    def partial(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `PreparedAggregation`."""
        return self._call("partial", table, lookups)

    def merge(self, rows: pa.Table) -> pa.Table:
        """See `PreparedAggregation`."""
        return self._call("merge", rows)


class JoinCalls(PreparedCalls):
    """See `PreparedJoin`."""

    @property
    def columns(self) -> tuple[Sequence[str], Sequence[str]]:
        """See `PreparedJoin`."""
        plans = self.known_plans
        return plans["left"].columns, plans["right"].columns

    @property
    def fields(self) -> tuple[JsonFields | None, JsonFields | None]:
        """See `PreparedJoin`."""
        plans = self.known_plans
        return plans["left"].fields, plans["right"].fields

    def left(self, records: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("left", records)

    def right(self, records: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("right", records)

    def matches(self, pairs: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("matches", pairs)

    def results(self, pairs: pa.Table) -> pa.Table:
        """See `PreparedJoin`."""
        return self._call("results", pairs)


class OverCalls(PreparedCalls):
    """See `PreparedOver`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """See `PreparedOver`."""
        return self.known_plans["rows"].columns

    @property
    def fields(self) -> JsonFields | None:
        """See `PreparedOver`."""
        return self.known_plans["rows"].fields

    def rows(self, records: pa.Table) -> pa.Table:
        """See `PreparedOver`."""
        return self._call("rows", records)

    def results(self, rows: pa.Table) -> pa.Table:
        """See `PreparedOver`."""
        return self._call("results", rows)

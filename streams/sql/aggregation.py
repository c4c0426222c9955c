"""Runs a query with GROUP BY batch by batch, with aggregation buffers that a store keeps.

`partial` turns a batch of records into groups and buffers. The caller adds the buffers that it has
kept for these groups, and `merge` gives what to keep now, and the results. So Spark computes, and
keeps nothing itself.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from streams.engine.user_code import UserCode
from streams.sql.aggregate_plan import (
    AGGREGATES,
    HAS_RESULT,
    AggregateParts,
    aggregate_parts,
    merging_plan,
    partial_plan,
)
from streams.sql.aggregate_query import GroupedQuery, Window, grouped_query
from streams.sql.output import shaped
from streams.sql.plan import items
from streams.sql.query_session import KeptPlan, QuerySession, translated
from streams.sql.spec import QueryError, QuerySpec, SparkLostError
from streams.sql.tables import Rows, SharedTables, Tables

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StateShape:
    """What a query keeps for each group.

    `groups` are the grouping columns, and `buffers` the aggregation buffers; all names differ.
    `output` are the columns of a result: `value`, `timestamp` (ms), and `key` and `headers` if the
    query gives them. Two queries can use the same state if their `fingerprint` is the same: the
    types of groups, the window, and the functions with the types of their arguments and buffers.
    """

    groups: pa.Schema
    buffers: pa.Schema
    output: pa.Schema
    window: Window | None
    fingerprint: str

    @property
    def rows(self) -> pa.Schema:
        """The types of rows with groups and their buffers."""
        return pa.schema([*self.groups, *self.buffers])


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge gives, in three tables of one row a group, in the same order.

    `rows` have groups and buffers, to be kept. `results` have the columns of a result. Where
    `has_result` is false, HAVING leaves the group out: `value` and `headers` are null, and so is
    `key` unless it is made of grouping columns.
    """

    rows: pa.Table
    results: pa.Table
    has_result: pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class _Plan:
    tables: Rows
    shape: StateShape
    partial: KeptPlan
    merge: KeptPlan


class RunningAggregation:
    """A query with GROUP BY that is ready to run. One thread at a time."""

    def __init__(
        self,
        session: SparkSession,
        spec: QuerySpec,
        tables: Tables,
        code: UserCode,
        shared: SharedTables,
    ) -> None:
        """Plan the query. Raises `QueryError` with the reason if no state can be kept for it."""
        self._tables = tables
        self._shared = shared
        # Each query has its own session, since views and settings belong to a session.
        self._session = session.newSession()
        self._work = QuerySession(self._session, spec, code)
        self._plan = self._tried_out(tables.rows)
        self._seen = self._plan.tables.version

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that the query needs."""
        return self._plan.partial.columns

    @property
    def shape(self) -> StateShape:
        """What the query keeps; it stays the same when lookup tables are read again."""
        return self._plan.shape

    def partial(self, table: pa.Table) -> pa.Table:
        """Return the groups of these records with their buffers, one row a group.

        Raises `QueryError` if a record may be to blame, otherwise `SparkLostError`.
        """
        with translated():
            self._work.enter_thread()
            self._use_newest_tables()
            if not set(table.column_names).issuperset(self.columns):
                raise SparkLostError("a table has changed, and the query needs other columns now")
            return self._plan.partial.run(table)

    def merge(self, rows: pa.Table) -> Merged:
        """Merge rows with groups and buffers, any number of them a group, and give the results.

        Rows that were kept come before those of a newer batch: `first`, `last` and the lists depend
        on the order. Raises as `partial` does.
        """
        shape = self._plan.shape
        with translated():
            self._work.enter_thread()
            merged = self._plan.merge.run(rows.select(shape.rows.names))
        return Merged(
            merged.select(range(len(shape.rows))),
            merged.select(range(len(shape.rows) + 1, merged.num_columns)),
            merged[HAS_RESULT].fill_null(False),
        )

    def cancel(self) -> None:
        """End a call from another thread: it then raises `SparkLostError`."""
        self._session.sparkContext.cancelJobsWithTag(self._work.tag)

    def close(self) -> None:
        """Release the tables."""
        self._shared.give_back(self._tables)

    def _use_newest_tables(self) -> None:
        rows = self._tables.rows
        if rows.version == self._seen:
            return
        self._seen = rows.version
        try:
            with translated():
                plan = self._tried_out(rows)
            if plan.shape.fingerprint != self._plan.shape.fingerprint:
                raise QueryError("with the new rows, the query would keep other state")
            self._plan = plan
        except QueryError as error:
            logger.warning("query keeps the old rows of its tables", reason=str(error))

    def _tried_out(self, tables: Rows) -> _Plan:
        """Return plans that were run on empty tables: Spark finds some mistakes only then."""
        plan = self._make_plan(tables)
        plan.merge.run(plan.partial.run(self._work.records.empty_table()))
        return plan

    def _make_plan(self, tables: Rows) -> _Plan:
        work = self._work
        work.enter_thread()
        analyzed, rdd_id = work.analyzed(tables)
        query = grouped_query(analyzed, rdd_id, work.jvm)
        if not work.is_reusable(analyzed):
            raise QueryError(
                "random numbers and the current time would make state depend on when a batch ran: "
                "use timestamp, or compute them in a processor before or after this one"
            )
        frame = shaped(work.frame(query.plan), work.spec.format)
        parts = aggregate_parts(frame._jdf.queryExecution().sparkPlan(), rdd_id)
        output = to_arrow_schema(frame.schema, timezone="UTC")
        shape = _shape(parts, query, output)
        empty = work.empty(shape.rows)
        partial = work.kept(
            empty, work.prepared(partial_plan(parts, work.jvm)), rdd_id, work.records, AGGREGATES
        )
        given = empty._jdf.queryExecution().sparkPlan()
        leaf = work.scan(given.rdd(), given, [*parts.groups, *parts.buffers])
        merge = work.kept(
            work.empty(pa.schema([*shape.rows, (HAS_RESULT, pa.bool_()), *output])),
            work.prepared(merging_plan(parts, leaf, query.time_id, work.jvm)),
            given.rdd().id(),
            shape.rows,
            AGGREGATES,
        )
        return _Plan(tables, shape, partial, merge)


def _shape(parts: AggregateParts, query: GroupedQuery, output: pa.Schema) -> StateShape:
    taken = {HAS_RESULT, *output.names}
    groups = pa.schema([_field(column, taken) for column in parts.groups])
    buffers = pa.schema([_field(column, taken) for column in parts.buffers])
    window = query.window
    for column, field in zip(parts.groups, groups, strict=True):
        if window is not None and column.exprId().id() == query.window_id:
            window = Window(field.name, window.size_us, window.slide_us, window.start_us)
    content = {
        "groups": [str(column.dataType().catalogString()) for column in parts.groups],
        "window": [window.size_us, window.slide_us, window.start_us] if window else [],
        "functions": [
            [
                str(function.prettyName()),
                _types(function.children()),
                _types(function.aggBufferAttributes()),
            ]
            for function in parts.functions
        ],
    }
    text = json.dumps(content, sort_keys=True)
    return StateShape(groups, buffers, output, window, hashlib.sha256(text.encode()).hexdigest())


def _types(expressions: Any) -> list[str]:
    return [str(each.dataType().catalogString()) for each in items(expressions)]


def _field(column: Any, taken: set[str]) -> pa.Field:
    """Return a column's name, with a number if another column has it, and its type."""
    name, number = str(column.name()), 1
    while name in taken:
        number += 1
        name = f"{column.name()} {number}"
    taken.add(name)
    type_ = _parse_datatype_json_string(str(column.dataType().json()))
    return to_arrow_schema(StructType([StructField(name, type_)]), timezone="UTC").field(0)

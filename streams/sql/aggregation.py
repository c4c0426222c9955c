"""Runs a query with GROUP BY batch by batch, with aggregation buffers that a store keeps.

`partial` turns a batch of records into groups and buffers. The caller adds the buffers that it has
kept for these groups, and `merge` gives what to keep now, and the results. So Spark computes, and
keeps nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from streams.engine.user_code import UserCode
from streams.sql.aggregate_plan import (
    AGGREGATES,
    AggregateParts,
    aggregate_parts,
    merging_plan,
    partial_plan,
)
from streams.sql.aggregate_query import GroupedQuery, grouped_query
from streams.sql.global_rows import GlobalRows
from streams.sql.kept_plan import INPUT, KeptPlan
from streams.sql.keyed_joins import require_keyed_joins
from streams.sql.output import shaped
from streams.sql.plan import items, kind, require_all_inputs
from streams.sql.query_session import QuerySession, translated
from streams.sql.spec import QueryError, QuerySpec, SparkLostError
from streams.sql.state_shape import (
    HAS_RESULT,
    OPEN_FROM,
    ORDER,
    Sessions,
    StateShape,
    Window,
    difference,
)
from streams.sql.tables import Rows, SharedTables, Tables

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Plan:
    tables: Rows
    shape: StateShape
    partial: KeptPlan
    merge: KeptPlan


class RunningAggregation:
    """See `Aggregation`."""

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
        hidden = [pa.field(OPEN_FROM, pa.timestamp("us", tz="UTC")), pa.field(ORDER, pa.int64())]
        self._work = QuerySession(self._session, spec, code, hidden)
        self._globals = GlobalRows(session, spec)
        self._plan = self._tried_out(self._globals.with_others(tables.rows))
        self._seen = self._plan.tables.version

    @property
    def columns(self) -> tuple[str, ...]:
        """See `Aggregation`."""
        return self._plan.partial.columns

    @property
    def shape(self) -> StateShape:
        """See `Aggregation`."""
        return self._plan.shape

    def partial(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        """See `Aggregation`."""
        with translated():
            self._work.enter_thread()
            self._use_newest_tables()
            if not set(table.column_names).issuperset(self.columns):
                raise SparkLostError("a table has changed, and the query needs other columns now")
            return self._plan.partial.run(table, lookups)

    def merge(self, rows: pa.Table) -> pa.Table:
        """See `Aggregation`."""
        with translated():
            self._work.enter_thread()
            self._use_newest_tables()
            merged = self._plan.merge.run(rows.select(self._plan.shape.rows.names))
        place = merged.column_names.index(HAS_RESULT)
        return merged.set_column(place, HAS_RESULT, merged[HAS_RESULT].fill_null(False))

    def replace(self, name: str, rows: pa.Table) -> None:
        """See `SparkQuery.replace`."""
        with translated():
            self._globals.replace(name, rows)

    def cancel(self) -> None:
        """End a call from another thread: it then raises `SparkLostError`."""
        self._session.sparkContext.cancelJobsWithTag(self._work.tag)

    def close(self) -> None:
        """Release the tables."""
        self._shared.give_back(self._tables)

    def _use_newest_tables(self) -> None:
        rows = self._globals.with_others(self._tables.rows)
        if rows.version == self._seen:
            return
        self._seen = rows.version
        try:
            with translated():
                plan = self._tried_out(rows)
            if changed := difference(self._plan.shape.content, plan.shape.content):
                raise QueryError(f"with the new rows, the query would keep other state: {changed}")
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
        found = work.analyzed(tables)
        rdd_id = found.rdd_id
        require_all_inputs(found.plan, found.inputs)
        query = grouped_query(found.plan, rdd_id, work.spec.max_collected, work.jvm)
        require_keyed_joins(found.plan, rdd_id, found.tables)
        if not work.is_reusable(found.plan):
            raise QueryError(
                "random numbers and the current time would make state depend on when a batch ran: "
                "use timestamp, or compute them in a processor before or after this one"
            )
        frame = shaped(work.frame(query.plan), work.spec.format, query.added)
        parts = aggregate_parts(frame._jdf.queryExecution().sparkPlan(), rdd_id)
        output = to_arrow_schema(frame.schema, timezone="UTC")
        shape = _shape(parts, query, output, str(self._session.version))
        empty = work.empty(shape.rows)
        partial = work.kept(empty, partial_plan(parts, work.jvm), work.leaves(found), AGGREGATES)
        given = empty._jdf.queryExecution().sparkPlan()
        leaf = work.scan(given.rdd(), given, [*parts.groups, *parts.buffers])
        merge = work.kept(
            work.empty(pa.schema([*shape.rows, (HAS_RESULT, pa.bool_()), *output])),
            merging_plan(parts, leaf, query.time_id, work.jvm),
            {int(given.rdd().id()): (INPUT, shape.rows)},
            AGGREGATES,
        )
        return _Plan(tables, shape, partial, merge)


def _shape(parts: AggregateParts, query: GroupedQuery, output: pa.Schema, spark: str) -> StateShape:
    taken = {HAS_RESULT, *output.names}
    groups = pa.schema([_field(column, taken) for column in parts.groups])
    buffers = pa.schema([_field(column, taken) for column in parts.buffers])
    window = query.window
    kept = list(parts.groups)
    for column, field in zip(parts.groups, groups, strict=True):
        if window is not None and column.exprId().id() == query.window_id:
            window = replace(window, column=field.name)
    if isinstance(window, Sessions):
        window = replace(window, order=groups.names[-1])
        kept.pop()
    content = {
        "groups": [str(column.dataType().catalogString()) for column in kept],
        "window": _times(window),
        "functions": [_described(function) for function in parts.functions],
        # Buffers are no public format of Spark; only releases with the same minor version promise
        # to change nothing but bugs.
        "spark": ".".join(spark.split(".")[:2]),
    }
    return StateShape(
        groups,
        buffers,
        output,
        window,
        "" if not isinstance(window, Window) else buffers[_place_of_last_time(parts, query)].name,
        query.has_key,
        query.is_distinct,
        json.dumps(content, sort_keys=True),
    )


def _times(window: Window | Sessions | None) -> list[int | str]:
    match window:
        case Window():
            return [window.size_us, window.slide_us, window.start_us]
        case Sessions():
            return ["sessions", window.gap_us]
    return []


def _described(function: Any) -> str:
    """Return a function with the types of its arguments and of what it keeps."""
    arguments = ", ".join(_types(function.children()))
    kept = ", ".join(_types(function.aggBufferAttributes()))
    return f"{function.prettyName()}({arguments}) in ({kept})"


def _place_of_last_time(parts: AggregateParts, query: GroupedQuery) -> int:
    """Return the index of the buffer with the largest timestamp of a group's records."""
    place = 0
    for function in parts.functions:
        if (
            kind(function) == "Max"
            and kind(function.child()) == "AttributeReference"
            and function.child().exprId().id() == query.record_time_id
        ):
            return place
        place += int(function.aggBufferAttributes().size())
    raise QueryError("Spark's plan does not keep the time of a group's last record")


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

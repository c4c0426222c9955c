"""Runs a query that joins two inputs: records to rows, and pairs of rows to results.

The caller keeps the rows, and finds the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from streams.engine.user_code import UserCode
from streams.sql.global_rows import GlobalRows
from streams.sql.join_query import JoinedQuery, joined_query, name_of
from streams.sql.join_shape import PAIR, RECORD, JoinShape
from streams.sql.kept_plan import INPUT, KeptPlan
from streams.sql.output import shaped
from streams.sql.plan import items, require_narrow, with_column, with_timestamp
from streams.sql.query_session import QuerySession, translated
from streams.sql.row_codec import RowCodec
from streams.sql.spec import QueryError, QuerySpec, SparkLostError
from streams.sql.tables import Rows, SharedTables, Tables

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Plan:
    tables: Rows
    shape: JoinShape
    sides: tuple[KeptPlan, KeptPlan]
    matches: KeptPlan
    results: KeptPlan


class RunningJoin:
    """See `StreamJoin`."""

    def __init__(
        self,
        session: SparkSession,
        spec: QuerySpec,
        tables: Tables,
        code: UserCode,
        shared: SharedTables,
    ) -> None:
        """Plan the query. Raises `QueryError` with the reason if it cannot be run."""
        self._tables = tables
        self._shared = shared
        # Each query has its own session, since views and settings belong to a session.
        self._session = session.newSession()
        self._work = QuerySession(self._session, spec, code, [pa.field(RECORD, pa.int64())])
        self._globals = GlobalRows(session, spec)
        self._plan = self._tried_out(self._globals.with_others(tables.rows))
        self._seen = self._plan.tables.version

    @property
    def columns(self) -> tuple[Sequence[str], Sequence[str]]:
        """See `StreamJoin`."""
        left, right = (side.columns for side in self._plan.sides)
        return left, right

    @property
    def shape(self) -> JoinShape:
        """See `StreamJoin`."""
        return self._plan.shape

    def left(self, records: pa.Table) -> pa.Table:
        """See `StreamJoin`."""
        return self._rows(0, records)

    def right(self, records: pa.Table) -> pa.Table:
        """See `StreamJoin`."""
        return self._rows(1, records)

    def matches(self, pairs: pa.Table) -> pa.Table:
        """See `StreamJoin`."""
        return self._run(lambda plan: plan.matches, pairs)

    def results(self, pairs: pa.Table) -> pa.Table:
        """See `StreamJoin`."""
        return self._run(lambda plan: plan.results, pairs)

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

    def _rows(self, side: int, records: pa.Table) -> pa.Table:
        return self._run(lambda plan: plan.sides[side], records)

    def _run(self, chosen: Callable[[_Plan], KeptPlan], table: pa.Table) -> pa.Table:
        with translated():
            self._work.enter_thread()
            self._use_newest_tables()
            plan = chosen(self._plan)
            if not set(table.column_names).issuperset(plan.columns):
                raise SparkLostError("a table has changed, and the query needs other columns now")
            return plan.run(table)

    def _use_newest_tables(self) -> None:
        rows = self._globals.with_others(self._tables.rows)
        if rows.version == self._seen:
            return
        self._seen = rows.version
        try:
            with translated():
                plan = self._tried_out(rows)
            if plan.shape != self._plan.shape:
                raise QueryError("with the new rows, the query would keep other columns")
            self._plan = plan
        except QueryError as error:
            logger.warning("query keeps the old rows of its tables", reason=str(error))

    def _tried_out(self, tables: Rows) -> _Plan:
        """Return plans that were run on empty tables: Spark finds some mistakes only then."""
        plan = self._make_plan(tables)
        for side in plan.sides:
            side.run(self._work.records.empty_table())
        pairs = plan.shape.pairs.empty_table()
        plan.matches.run(pairs)
        plan.results.run(pairs)
        return plan

    def _make_plan(self, tables: Rows) -> _Plan:
        work = self._work
        work.enter_thread()
        found = work.analyzed(tables)
        query = joined_query(found.plan, found.inputs, found.rdd_id)
        if not work.is_reusable(found.plan):
            raise QueryError(
                "random numbers and the current time would make what is kept depend on when a "
                "batch ran: use timestamp, or compute them in a processor before or after this one"
            )
        left, right = (self._side(query, side) for side in (0, 1))
        shape = JoinShape(
            (_rows_of(left), _rows_of(right)),
            query.text,
            bool(query.others and query.text.keeps),
            (_described(query, 0), _described(query, 1)),
        )
        pairs = work.empty(shape.pairs)
        given = pairs._jdf.queryExecution().analyzed()
        _require_same_types(query, given)
        leaves = {int(given.rdd().id()): (INPUT, shape.pairs)}
        matches = work.frame(query.matches(given, work.jvm))
        top = query.results(given, work.jvm)
        rdd_id = int(given.rdd().id())
        require_narrow(top, rdd_id)
        if not any(column.name().lower() == "timestamp" for column in items(top.output())):
            top = with_timestamp(top, rdd_id, work.jvm)
        top = with_column(top, PAIR, rdd_id, work.jvm)
        results = shaped(work.frame(top), work.spec.format, [PAIR])
        return _Plan(
            tables,
            shape,
            (left, right),
            work.kept(matches, matches._jdf.queryExecution().sparkPlan(), leaves),
            work.kept(results, results._jdf.queryExecution().sparkPlan(), leaves),
        )

    def _side(self, query: JoinedQuery, side: int) -> KeptPlan:
        work = self._work
        frame = work.frame(query.rows(side, work.jvm))
        leaves: Mapping[int, tuple[str, pa.Schema]] = {query.rdd_ids[side]: (INPUT, work.records)}
        return work.kept(frame, frame._jdf.queryExecution().sparkPlan(), leaves)


def _rows_of(side: KeptPlan) -> pa.Schema:
    """Return the types of a side's rows, without `RECORD`."""
    # A row without a partner has nulls on the other side.
    rows = pa.schema([f.with_nullable(True) for f in side.output if f.name != RECORD])
    try:
        RowCodec(rows)
    except TypeError as error:
        raise QueryError(f"its rows cannot be kept: {error}") from error
    return rows


def _described(query: JoinedQuery, side: int) -> list[str]:
    return [f"{column.name()} {column.dataType().catalogString()}" for column in query.kept[side]]


def _require_same_types(query: JoinedQuery, pairs: Any) -> None:
    """Raise `QueryError` for a column whose type Arrow cannot carry to a store and back."""
    given = {str(column.name()): column for column in items(pairs.output())}
    for side in (0, 1):
        for index, column in enumerate(query.kept[side]):
            kept = str(given[name_of(side, index)].dataType().catalogString())
            wanted = str(column.dataType().catalogString())
            if kept != wanted:
                raise QueryError(
                    f"{column.name()} is of the type {wanted}, which cannot be kept: cast it below "
                    "the join, or leave it out"
                )

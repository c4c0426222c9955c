"""Runs a query with `OVER (…)`: records to rows, and rows that are due to results.

The caller keeps the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_pipeline.streams.sql.analyzed_over import OverQuery, over_query
from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.kept_columns import described, kept_types, require_same_types
from kafka_pipeline.streams.sql.output import shaped
from kafka_pipeline.streams.sql.over_shape import ORIGIN, PLACE, OverShape
from kafka_pipeline.streams.sql.plan import require_all_inputs, with_column, with_time
from kafka_pipeline.streams.sql.prepared_calls import OverCalls, Plans
from kafka_pipeline.streams.sql.ranked_plan import SORTING
from kafka_pipeline.streams.sql.running import Running
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.tables import Rows


@dataclass(frozen=True, slots=True)
class _Plan:
    shape: OverShape
    rows: CompiledPlan
    results: CompiledPlan


class RunningOver(Running[_Plan], OverCalls):
    """See `PreparedOver`."""

    @property
    def shape(self) -> OverShape:
        """See `PreparedOver`."""
        return self.plan.shape

    def named(self, plan: _Plan) -> Plans:
        """See `Running`."""
        return {"rows": plan.rows, "results": plan.results}

    def require_same_state(self, plan: _Plan) -> None:
        """See `Running`."""
        if plan.shape != self.shape:
            raise QueryError("with the new rows, the query would keep other columns")

    def tried_out(self, rows: Rows) -> _Plan:
        """See `Running`."""
        plan = self._make_plan(rows)
        plan.rows.run(self.work.records.empty_table())
        plan.results.run(plan.shape.given.empty_table())
        return plan

    def _make_plan(self, tables: Rows) -> _Plan:
        work = self.work
        work.begin_planning()
        found = work.analyzed(tables)
        require_all_inputs(found.plan, found.inputs)
        query = over_query(found.plan, found.rdd_id)
        work.require_reusable(found.plan, "results")
        frame = work.frame(query.rows(work.make))
        rows = work.compiled(frame, work.leaves(found), records=found.records[found.rdd_id])
        shape = _shape(query, rows)
        empty = work.empty(shape.given)
        given = empty._jdf.queryExecution().analyzed()
        kept = {f"column{at}": column for at, column in enumerate(query.kept)}
        require_same_types(given, kept, "OVER (…)")
        rdd_id = int(given.rdd().id())
        top = with_time(query.results(given, work.make), rdd_id, work.make)
        top = with_column(top, PLACE, rdd_id, work.make)
        results = shaped(work.frame(top), work.spec, [PLACE])
        return _Plan(
            shape,
            rows,
            work.compiled(results, {rdd_id: (INPUT, shape.given)}, SORTING),
        )


def _shape(query: OverQuery, plan: CompiledPlan) -> OverShape:
    rows = kept_types(field for field in plan.output if field.name not in ORIGIN)
    columns = described((*query.partitions, *query.kept))
    key_column = None if query.key_at is None else rows.names[query.key_at]
    return OverShape(
        rows, len(query.partitions), query.rows_before, query.range_ms, columns, key_column
    )

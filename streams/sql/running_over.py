"""Runs a query with `OVER (…)`: records to rows, and rows that are due to results.

The caller keeps the rows.
"""

from __future__ import annotations

from kafka_pipeline.streams.sql.analyzed_over import OverQuery, over_query
from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.kept_columns import described, kept_types, require_same_types
from kafka_pipeline.streams.sql.output import shaped
from kafka_pipeline.streams.sql.over_shape import ORIGIN, PLACE, OverShape
from kafka_pipeline.streams.sql.plan import require_all_inputs, with_column, with_time
from kafka_pipeline.streams.sql.prepared_calls import OverCalls, Plans
from kafka_pipeline.streams.sql.query_session import Analyzed
from kafka_pipeline.streams.sql.ranked_plan import SORTING
from kafka_pipeline.streams.sql.running import Planned, RunningState


class RunningOver(RunningState[OverShape], OverCalls):
    """See `PreparedOver`."""

    def run_on_nothing(self, shape: OverShape, plans: Plans) -> None:
        plans["rows"].run(self.work.records.empty_table())
        plans["results"].run(shape.given.empty_table())

    def planned(self, found: Analyzed) -> Planned[OverShape]:
        work = self.work
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
        frame = shaped(work.frame(top), work.spec, [PLACE])
        results = work.compiled(frame, {rdd_id: (INPUT, shape.given)}, SORTING)
        return Planned(shape, {"rows": rows, "results": results})


def _shape(query: OverQuery, plan: CompiledPlan) -> OverShape:
    rows = kept_types(field for field in plan.output if field.name not in ORIGIN)
    columns = described((*query.partitions, *query.kept))
    key_column = None if query.key_at is None else rows.names[query.key_at]
    return OverShape(
        rows, len(query.partitions), query.rows_before, query.range_ms, columns, key_column
    )

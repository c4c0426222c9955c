"""Runs a query that joins two inputs: records to rows, and pairs of rows to results.

The caller keeps the rows, and finds the pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from msgspec import structs

from kafka_pipeline.streams.spark.zone import TIME_ZONE
from kafka_pipeline.streams.sql.analyzed_join import JoinedQuery, joined_query, name_of
from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.join_bounds import EXAMPLE
from kafka_pipeline.streams.sql.join_shape import EQUAL, PAIR, RECORD, SIDES, JoinShape
from kafka_pipeline.streams.sql.kept_columns import described, kept_types, require_same_types
from kafka_pipeline.streams.sql.output import as_columns, shaped
from kafka_pipeline.streams.sql.plan import require_narrow, with_column, with_time
from kafka_pipeline.streams.sql.prepared_calls import JoinCalls, Plans
from kafka_pipeline.streams.sql.query_session import Analyzed
from kafka_pipeline.streams.sql.running import Planned, RunningState
from kafka_pipeline.streams.sql.spec import QueryError


class RunningJoin(RunningState[JoinShape], JoinCalls):
    """See `PreparedJoin`."""

    hidden = (pa.field(RECORD, pa.int64()),)

    def run_on_nothing(self, shape: JoinShape, plans: Plans) -> None:
        records, pairs = self.work.records.empty_table(), shape.pairs.empty_table()
        for name, plan in plans.items():
            plan.run(records if name in SIDES else pairs)

    def planned(self, found: Analyzed) -> Planned[JoinShape]:
        work = self.work
        # A query of one input joins it with itself.
        inputs = found.inputs or dict.fromkeys([found.rdd_id], work.spec.inputs[0])
        query = joined_query(found.plan, inputs, found.rdd_id, work.spec.joined_by, work.make)
        work.require_reusable(found.plan, "what is kept")
        left, right = sides = (self._side(query, found, 0), self._side(query, found, 1))
        for name in work.spec.changing:
            _require_kept(sides[SIDES.index(name)])
        fields_of_json = [found.records[rdd_id].fields_of_json for rdd_id in query.rdd_ids]
        shape = JoinShape(
            (_rows_of(left), _rows_of(right)),
            structs.replace(query.spec, changing=work.spec.changing),
            query.is_checked,
            (described(query.kept[0]), described(query.kept[1])),
            pa.schema([left.output.field(name) for name in query.names_of_equal]),
            query.described_equal,
            self._reading if work.spec.changing else (),
            (fields_of_json[0], fields_of_json[1]) if work.spec.changing else ((), ()),
        )
        pairs = work.empty(shape.pairs)
        given = pairs._jdf.queryExecution().analyzed()
        kept = {
            name_of(side, index): column
            for side in (0, 1)
            for index, column in enumerate(query.kept[side])
        }
        require_same_types(given, kept, "the join")
        leaves = {int(given.rdd().id()): (INPUT, shape.pairs)}
        matches = work.frame(query.matches(given, work.make))
        top = query.results(given, work.make)
        rdd_id = int(given.rdd().id())
        require_narrow(top, rdd_id)
        names = [str(column.name()).lower() for column in items(top.output())]
        if "key" not in names and work.spec.changing:
            raise QueryError(
                "the join has updates, so its results must go once their rows change: let the "
                "query give a key that identifies a row of the result"
            )
        if query.spec.regular is not None and query.spec.keeps and "key" not in names:
            raise QueryError(
                "a row without a partner has a result, which must go once a partner comes: let the "
                "query give a key, such as coalesce(o.key, p.key) AS key, or join with bounds of "
                f"time, as in {EXAMPLE}"
            )
        plans = {
            "left": left,
            "right": right,
            "matches": work.compiled(matches, leaves),
            "results": self._results(with_time(top, rdd_id, work.make), rdd_id, leaves),
        }
        return Planned(shape, plans)

    @property
    def _reading(self) -> list[Any]:
        """See `JoinShape`."""
        spec = self.work.spec
        return [
            " ".join(spec.query.split()),
            spec.format,
            spec.schema,
            dict(spec.schemas),
            spec.is_lenient,
            self.work.types_of_stages,
            str(self._session.conf.get(TIME_ZONE)),
        ]

    def _results(
        self, top: Any, rdd_id: int, leaves: Mapping[int, tuple[str, pa.Schema]]
    ) -> CompiledPlan:
        work, columns = self.work, None
        if work.spec.gives_columns:
            columns = work.columns_of_stage(work.frame(top).schema)
        frame = work.frame(with_column(top, PAIR, rdd_id, work.make))
        frame = (shaped if columns is None else as_columns)(frame, work.spec, [PAIR])
        compiled = work.compiled(frame, leaves)
        if columns is None:
            return compiled
        # As the next stage has them, where all may be null.
        given = [columns.rows.field(name) for name in frame.columns if name != PAIR]
        return replace(compiled, output=pa.schema([*given, compiled.output.field(PAIR)]))

    def _side(self, query: JoinedQuery, found: Analyzed, side: int) -> CompiledPlan:
        work, rdd_id = self.work, query.rdd_ids[side]
        frame, records = work.frame(query.rows(side, work.make)), found.records[rdd_id]
        leaves: Mapping[int, tuple[str, pa.Schema]] = {rdd_id: (INPUT, records.rows)}
        return work.compiled(frame, leaves, records=records)


def _rows_of(side: CompiledPlan) -> pa.Schema:
    """Return the types of the columns that are kept of a side's rows."""
    # A row without a partner has nulls on the other side.
    return kept_types(f for f in side.output if not f.name.startswith((RECORD, EQUAL)))


def _require_kept(side: CompiledPlan) -> None:
    """Raise `QueryError` for columns that are not kept of a record that is replaced later."""
    lost = [name for name in ("partition", "offset", "headers") if name in side.columns]
    if lost:
        raise QueryError(
            f"a join with updates cannot read {' and '.join(lost)} of these: of a former record, "
            "only the key, value and timestamp are known"
        )

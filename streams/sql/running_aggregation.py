"""Runs a query with GROUP BY batch by batch, with aggregation buffers that a store keeps.

`partial` turns a batch of records into groups and buffers. The caller adds the buffers that it has
kept for these groups, and `merge` gives what to keep now, and the results. So Spark computes, and
keeps nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from kafka_pipeline.common.pipelines.specs import CalendarSpec, SessionSpec, WindowSpec
from kafka_pipeline.streams.spark.zone import TIME_ZONE
from kafka_pipeline.streams.sql.analyzed_groups import GroupedQuery, grouped_query
from kafka_pipeline.streams.sql.catalyst import Catalyst, scala_object
from kafka_pipeline.streams.sql.columns import MOMENT
from kafka_pipeline.streams.sql.compiled_plan import INPUT, CompiledPlan
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.kept_distinct_plan import filled_with
from kafka_pipeline.streams.sql.output import require_plain_type, shaped
from kafka_pipeline.streams.sql.plan import id_of, input_column, kind, require_all_inputs, type_of
from kafka_pipeline.streams.sql.prepared_calls import AggregationCalls, Plans
from kafka_pipeline.streams.sql.query_session import Analyzed
from kafka_pipeline.streams.sql.ranked_plan import (
    SORTING,
    ranked_merge,
    ranked_partial,
    ranked_parts,
)
from kafka_pipeline.streams.sql.retraction import CHANGE, CHANGE_TIME, counts_rows
from kafka_pipeline.streams.sql.running import Planned, RunningState
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.split_aggregate import (
    AGGREGATES,
    AggregateParts,
    aggregate_parts,
    empty_buffers,
    merging_plan,
    partial_plan,
    ranked_plan,
)
from kafka_pipeline.streams.sql.state_change import DISTINCT, state_change
from kafka_pipeline.streams.sql.state_shape import (
    HAS_RESULT,
    IS_FORMER,
    MARK,
    OPEN_FROM,
    ORDER,
    PERIOD,
    PLACE,
    StateShape,
    window_content,
)
from kafka_pipeline.streams.sql.table_joins import at_record_times, require_keyed_joins
from kafka_pipeline.streams.sql.tables import Rows


class RunningAggregation(RunningState[StateShape], AggregationCalls):
    """See `PreparedAggregation`."""

    hidden: ClassVar[Sequence[pa.Field]] = (
        pa.field(OPEN_FROM, MOMENT),
        pa.field(PERIOD, pa.struct([("start", MOMENT), ("end", MOMENT)])),
        pa.field(ORDER, pa.int64()),
    )

    def require_same_state(self, plan: Planned[StateShape]) -> None:
        if plan.shape.content != self.shape.content:
            change = state_change(self.shape.content, plan.shape.content)
            changed = change.different or "other types"
            raise QueryError(f"with the new rows, the query would keep other state: {changed}")
        if _ways(plan.shape) != _ways(self.shape):
            raise QueryError("with the new rows, the query would group records in another way")

    def run_on_nothing(self, shape: StateShape, plans: Plans) -> None:
        plans["merge"].run(plans["partial"].run(self.work.records.empty_table()))

    def planned(self, found: Analyzed) -> Planned[StateShape]:
        work = self.work
        rdd_id = found.rdd_id
        require_all_inputs(found.plan, found.inputs)
        spec = work.spec
        query = grouped_query(
            found.plan,
            rdd_id,
            spec.max_collected,
            work.make,
            spec.calendar,
            spec.least_best,
            keeps_distinct=spec.keeps_distinct,
            is_changelog=spec.changelog,
            is_inner=spec.is_inner,
        )
        require_keyed_joins(found.plan, rdd_id, found.tables)
        work.require_reusable(found.plan, "state")
        plan = at_record_times(query.plan, rdd_id, found.versioned, work.make)
        frame = shaped(work.frame(plan), work.spec, query.added)
        planned = frame._jdf.queryExecution().sparkPlan()
        change = input_column(found.plan, CHANGE, rdd_id) if spec.changelog else None
        parts = aggregate_parts(planned, rdd_id, query.arguments, change, work.make)
        best = query.groups.best
        # Over a changelog, the merge ranks rows.
        is_ranked = best is not None and best.ranking is not None and change is None
        if is_ranked:
            parts = ranked_parts(parts, work.make)
        output = to_arrow_schema(frame.schema, timezone="UTC")
        shape = _shape(
            parts, query, output, str(self._session.version), work.make, is_ranked=is_ranked
        )
        if change is not None:
            shape = replace(
                self._of_changelog(shape, parts, change),
                fields_of_json=[*found.records[rdd_id].fields_of_json],
            )
        partial = work.compiled(
            work.empty(shape.rows),
            work.leaves(found),
            (*AGGREGATES, *SORTING),
            found.records[rdd_id],
            ranked_partial(parts, work.make) if is_ranked else partial_plan(parts, work.make),
        )
        merge = self._merging(shape, parts, query)
        return Planned(shape, {"partial": partial, "merge": merge})

    def _merging(
        self, shape: StateShape, parts: AggregateParts, query: GroupedQuery
    ) -> CompiledPlan:
        """Return the plan that merges rows of groups and buffers."""
        work, best = self.work, query.groups.best
        empty = work.empty(shape.rows)
        given = empty._jdf.queryExecution().sparkPlan()
        ranking = None if best is None else best.ranking
        of_rows = [(PLACE, pa.int32()), (MARK, pa.int64())] if best is not None else []
        of_rows += [] if ranking is None else [(IS_FORMER, pa.bool_())]
        if ranking is None or work.spec.changelog:
            columns = [*parts.groups, *parts.buffers, *parts.values]
            leaf = work.scan(given.rdd(), given, columns)
            plan = merging_plan(parts, leaf, query.time_id, work.make, ranking)
        else:
            ranked = ranked_merge(parts, ranking, empty, work.make)
            plan = ranked_plan(parts, ranked, query.time_id, work.make)
        output = [*shape.kept, (HAS_RESULT, pa.bool_()), *of_rows, *shape.output]
        return work.compiled(
            work.empty(pa.schema(output)),
            {int(given.rdd().id()): (INPUT, shape.rows)},
            (*AGGREGATES, *SORTING),
            plan=plan,
        )

    def _of_changelog(self, shape: StateShape, parts: AggregateParts, change: Any) -> StateShape:
        """Return what a query over a changelog with the column `change` keeps.

        A row is taken out as the query computes it then. So a query with another text, another
        schema, other types of what a stage gives, or another zone cannot go on with the state.
        """
        spec = self.work.spec
        place = _place_of(parts, id_of(change), counts_rows)
        text = [
            " ".join(spec.query.split()),
            spec.format,
            spec.schema,
            spec.is_lenient,
            self.work.types_of_stages,
            str(self._session.conf.get(TIME_ZONE)),
        ]
        content = {**json.loads(shape.content), "changelog": text}
        return replace(
            shape,
            row_count=shape.buffers.names[place],
            readings={
                name: each.reading
                for name, each in zip(shape.values.names, parts.distinct, strict=True)
                if each.reading is not None
            },
            fills=_fills(parts, shape),
            computed=_computed(parts, shape.buffers),
            content=json.dumps(content, sort_keys=True),
        )


class RunningRetraction(RunningAggregation):
    """An aggregation over a changelog, whose records have a change and its time."""

    hidden = (
        *RunningAggregation.hidden,
        pa.field(CHANGE, pa.int64()),
        pa.field(CHANGE_TIME, MOMENT),
    )

    def tried_out(self, rows: Rows) -> Planned[StateShape]:
        """See `Running`. Raises `QueryError` for columns that a table does not keep."""
        plan = super().tried_out(rows)
        columns = plan.plans["partial"].columns
        lost = [name for name in ("partition", "offset", "headers") if name in columns]
        if lost:
            raise QueryError(
                f"a query over updates cannot read {' and '.join(lost)}: of a former record, only "
                "the key, value and timestamp are known"
            )
        return plan


def _shape(
    parts: AggregateParts,
    query: GroupedQuery,
    output: pa.Schema,
    spark: str,
    make: Catalyst,
    *,
    is_ranked: bool,
) -> StateShape:
    """Return what a query keeps; if it `is_ranked`, that is rows and not buffers of functions."""
    taken = {HAS_RESULT, PLACE, MARK, IS_FORMER, *output.names}
    groups = pa.schema([_field(column, taken) for column in parts.groups])
    buffers = pa.schema([_field(column, taken) for column in parts.buffers])
    values = pa.schema([_field(column, taken) for column in parts.values])
    query_groups = query.groups
    window, kept = query_groups.window, list(parts.groups)
    names = dict(zip(map(id_of, parts.groups), groups.names, strict=True))
    window_column, key_column = (
        "" if column is None else names.get(id_of(column), "")
        for column in (query_groups.window_column, query_groups.key_column)
    )
    if query_groups.key_column is not None and not key_column:
        # Spark leaves out an alias that changes nothing, as in `SELECT DISTINCT key AS key`.
        key_column = names.get(query_groups.record_key_id, "")
    order_column = ""
    if isinstance(window, SessionSpec):
        order_column = groups.names[-1]
        kept.pop()
    content: dict[str, Any] = {
        "groups": [type_of(column) for column in kept],
        "window": window_content(window),
        "functions": _described(parts),
        "expressions": _expressions(parts, make),
        "sizes": [int(each.aggBufferAttributes().size()) for each in parts.functions],
        "unscaled": [_unscaled(function) for function in parts.functions],
        # Buffers are no public format of Spark; only releases with the same minor version promise
        # to change nothing but bugs.
        "spark": ".".join(spark.split(".")[:2]),
    }
    if parts.distinct:
        content["distinct"] = [*_sets_of(parts).values()]
    best = query_groups.best
    ranking = None if best is None else best.ranking
    if best is not None and ranking is None:
        content["best"] = [best.size, *best.order]
    elif best is not None and ranking is not None:
        content["ranked"] = [ranking.limited, *best.order]
    return StateShape(
        groups,
        buffers,
        values,
        output,
        window,
        window_column,
        order_column,
        buffers[_place_of(parts, query.groups.record_time_id, _is_last_time)].name
        if isinstance(window, WindowSpec | CalendarSpec)
        else "",
        key_column,
        query_groups.is_distinct,
        0 if best is None or ranking is not None else best.size,
        "" if ranking is None else ranking.function,
        best is not None and best.loses_rows,
        buffers.empty_table() if is_ranked else empty_buffers(parts, buffers),
        json.dumps(content, sort_keys=True),
    )


def _ways(shape: StateShape) -> tuple[str, bool, int]:
    return shape.key_column, shape.loses_rows, shape.best


def _sets_of(parts: AggregateParts) -> dict[int, int]:
    """Return the number of the set of each function that has one, by the function's index."""
    found = {at: number for number, each in enumerate(parts.distinct) for at in each.functions}
    return dict(sorted(found.items()))


def _with_distinct(parts: AggregateParts) -> set[int]:
    """Return the indexes of functions with DISTINCT over records."""
    return {at for each in parts.distinct if each.reading is None for at in each.functions}


def _computed(parts: AggregateParts, buffers: pa.Schema) -> list[str]:
    """Return the buffers of functions that see values which are kept."""
    functions = {
        at
        for each in parts.distinct
        if each.reading not in (None, "changes")
        for at in each.functions
    }
    names = iter(buffers.names)
    return [
        name
        for at, own in enumerate(parts.buffers_of)
        for name in islice(names, len(own))
        if at in functions
    ]


def _fills(parts: AggregateParts, shape: StateShape) -> dict[str, dict[str, str]]:
    """Return what the caller fills buffers with, by the column of the values; see `StateShape`."""
    names = dict(zip(map(id_of, parts.buffers), shape.buffers.names, strict=True))
    functions, buffers_of = parts.functions, parts.buffers_of
    return {
        column: {
            names[id_of(buffer)]: what
            for at in each.functions
            for buffer, what in zip(buffers_of[at], filled_with(functions[at], each), strict=True)
            if what is not None
        }
        for column, each in zip(shape.values.names, parts.distinct, strict=True)
        if not each.is_folded
    }


def _described(parts: AggregateParts) -> list[str]:
    """Return the functions with the types of their arguments and of what they keep."""
    buffers, distinct = iter(_types_of(parts.buffers)), _with_distinct(parts)
    found = []
    for at, function in enumerate(parts.functions):
        arguments = ", ".join(_types(function.children()))
        kept = ", ".join(islice(buffers, int(function.aggBufferAttributes().size())))
        word = DISTINCT if at in distinct else ""
        found.append(f"{function.prettyName()}({word}{arguments}) in ({kept})")
    return found


def _expressions(parts: AggregateParts, make: Catalyst) -> list[str]:
    """Return the functions as a query would write them; all differ."""
    shown = scala_object(make.catalyst.util, "package").toPrettySQL
    found, distinct = dict[str, None](), _with_distinct(parts)
    for at, each in enumerate(items(parts.partial.aggregateExpressions())):
        function = each.aggregateFunction()
        written = each.copy(function, each.mode(), at in distinct, each.filter(), each.resultId())
        # The expression of best rows has their limit, which may change.
        text = "row_number()" if kind(function) == "CollectTopK" else str(shown(written, True))
        for child in items(function.children()):
            if kind(child) == "UnscaledValue":
                text = text.replace(str(shown(child, True)), str(shown(child.child(), True)))
        name, number = text, 1
        while name in found:
            number += 1
            name = f"{text} {number}"
        found[name] = None
    return [*found]


def _unscaled(function: Any) -> str:
    """Return the type of decimals of which a function takes the digits, as whole numbers."""
    found = [
        child.child() for child in items(function.children()) if kind(child) == "UnscaledValue"
    ]
    return ", ".join(_types_of(found))


def _is_last_time(function: Any, time_id: int) -> bool:
    """Whether an aggregate function is the largest timestamp of a group's records."""
    return (
        kind(function) == "Max"
        and kind(function.child()) == "AttributeReference"
        and id_of(function.child()) == time_id
    )


def _place_of(parts: AggregateParts, column_id: int, is_wanted: Callable[[Any, int], bool]) -> int:
    """Return the index of the first buffer of a wanted function of a column of all records.

    The query may have the same function with `FILTER`, which sees some records only.
    """
    place = 0
    for each in items(parts.partial.aggregateExpressions()):
        function = each.aggregateFunction()
        if each.filter().isEmpty() and is_wanted(function, column_id):
            return place
        place += int(function.aggBufferAttributes().size())
    raise QueryError("Spark's plan does not keep what the engine has added to the query")


def _types(expressions: Any) -> list[str]:
    return _types_of(items(expressions))


def _types_of(expressions: Sequence[Any]) -> list[str]:
    return [type_of(each) for each in expressions]


def _field(column: Any, taken: set[str]) -> pa.Field:
    """Return a column's name, with a number if another column has it, and its type."""
    name, number = str(column.name()), 1
    while name in taken:
        number += 1
        name = f"{column.name()} {number}"
    taken.add(name)
    described = str(column.dataType().json())
    require_plain_type(described)
    type_ = _parse_datatype_json_string(described)
    return to_arrow_schema(StructType([StructField(name, type_)]), timezone="UTC").field(0)

"""Cuts Spark's plan of an aggregation in two: what is done to records, and to buffers.

Spark plans GROUP BY as a final aggregate over a partial one. The partial aggregate gives grouping
columns and aggregation buffers, which are plain columns that a store can keep. The final one's
functions in mode PartialMerge merge the buffers of any number of batches. Then the SELECT and
HAVING are evaluated on the merged buffers, in the same plan. Works through py4j, on Spark 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject

from kafka_pipeline.streams.sql.catalyst import Catalyst, scala_object
from kafka_pipeline.streams.sql.distinct_plan import FOLDED, SAME_WITH_DUPLICATES
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.kept_distinct_plan import (
    VERSIONS,
    DistinctSet,
    collecting_plan,
    distinct_sets,
    folded_columns,
)
from kafka_pipeline.streams.sql.plan import id_of, kind, nodes_to_input, require_rows
from kafka_pipeline.streams.sql.ranked_rows import KEPT, NUMBER, ROW, Ranking, with_places
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.state_shape import HAS_RESULT, IS_FORMER, MARK, PLACE

AGGREGATES = ("HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec")
"""The operators of plans with an aggregate that row-by-row plans do not have."""

_BY_EXPRESSION = frozenset({*FOLDED, *SAME_WITH_DUPLICATES})
"""The classes of functions whose result is an expression of their buffers.

Many names in SQL become one of these: any_value, bool_and, count_if, every, some, try_sum …
"""

_INSTEAD = {"ListAgg": "array_join(collect_list(…), ',')"}
"""What to write in place of functions whose buffers cannot be merged."""
_BY_AGGREGATE = frozenset(
    {
        "ApproximatePercentile",
        "CollectList",
        "CollectSet",
        "CollectTopK",
        "HyperLogLogPlusPlus",
        "Percentile",
    }
)
"""The classes of functions whose result only an aggregate operator computes."""

_AFTER_GROUPS = ("ProjectExec", "FilterExec", "GenerateExec")


@dataclass(frozen=True, slots=True)
class AggregateParts:
    """The operators of an aggregation, and its columns as attributes of Spark.

    `above` are the operators above the final aggregate, from the result down. `distinct` are the
    sets of values that the caller keeps.
    """

    above: Sequence[Any]
    final: Any
    partial: Any
    groups: Sequence[Any]
    buffers: Sequence[Any]
    distinct: Sequence[DistinctSet]

    @property
    def values(self) -> list[Any]:
        """The columns of rows of a batch with the distinct values."""
        return [each.column for each in self.distinct]

    @property
    def buffers_of(self) -> list[Sequence[Any]]:
        """The buffers of each function."""
        found, at = list[Sequence[Any]](), 0
        for function in self.functions:
            size = int(function.aggBufferAttributes().size())
            found.append(self.buffers[at : at + size])
            at += size
        return found

    @property
    def functions(self) -> list[Any]:
        """The aggregate functions, in the order of their buffers."""
        return [each.aggregateFunction() for each in items(self.final.aggregateExpressions())]


def aggregate_parts(
    plan: Any, rdd_id: int, arguments: Collection[int], change: Any | None, make: Catalyst
) -> AggregateParts:
    """Take a physical plan apart, as Spark's planner gives it, without exchanges.

    `arguments` are the ids of the columns whose values the caller keeps, for functions with
    DISTINCT or over a changelog, where `change` is the column of the change of each row. Raises
    `QueryError` if it is not a final aggregate over a partial one, or if a function's buffers
    cannot be merged.
    """
    require_rows(plan, rdd_id)
    above = []
    for node in nodes_to_input(plan, rdd_id):
        if kind(node) in AGGREGATES:
            plan = node
            break
        if kind(node) not in _AFTER_GROUPS:
            raise _not_split(node)
        above.append(node)
    partial = items(plan.children())[0]
    if kind(partial) != kind(plan):
        raise _not_split(partial)
    for each in items(plan.aggregateExpressions()):
        function = each.aggregateFunction()
        if kind(function) not in _BY_EXPRESSION | _BY_AGGREGATE:
            instead = _INSTEAD.get(kind(function), "another aggregate function")
            raise QueryError(
                f"{function.prettyName()}(…) cannot keep state: use {instead}, or a class with a "
                "store"
            )
    columns = items(partial.output())
    count = plan.groupingExpressions().size()
    distinct = distinct_sets(items(partial.aggregateExpressions()), arguments, change, make)
    return AggregateParts(above, plan, partial, columns[:count], columns[count:], distinct)


def empty_buffers(parts: AggregateParts, buffers: pa.Schema) -> pa.Table:
    """Return a row with the buffers of a group without records, in these columns."""
    values = [value for function in parts.functions for value in _initial(function)]
    arrays = [pa.array([value], field.type) for value, field in zip(values, buffers, strict=True)]
    return pa.Table.from_arrays(arrays, schema=buffers)


def _initial(function: Any) -> list[Any]:
    match kind(function):
        case "HyperLogLogPlusPlus":
            return [0] * int(function.aggBufferAttributes().size())
        case name if name in _BY_AGGREGATE:
            return [bytes(function.serialize(function.createAggregationBuffer()))]
    values = [each.eval(None) for each in items(function.initialValues())]
    # Numbers, booleans and nulls come as they are, and decimals as objects of Spark.
    return [Decimal(str(each)) if isinstance(each, JavaObject) else each for each in values]


def partial_plan(parts: AggregateParts, make: Catalyst) -> Any:
    """Return the physical plan that turns records into groups, buffers and distinct values."""
    node = parts.partial
    if parts.distinct:
        return collecting_plan(node, parts.distinct, parts.buffers, make)
    if kind(node) != "SortAggregateExec":
        return node
    return make.hashed(
        node.requiredChildDistributionExpressions(),
        node.groupingExpressions(),
        node.aggregateExpressions(),
        node.aggregateAttributes(),
        node.initialInputBufferOffset(),
        node.resultExpressions(),
        items(node.children())[0],
    )


def merging_plan(
    parts: AggregateParts,
    leaf: Any,
    time_id: int | None,
    make: Catalyst,
    ranking: Ranking | None,
) -> Any:
    """Return the physical plan that merges the buffers of a leaf and gives the rows of each group.

    The leaf has the groups, the buffers, and the distinct values that functions have not seen yet.
    Its columns are the groups, the buffers, whether HAVING keeps the row (`has_result`), for best
    rows their `PLACE` and `MARK`, and the columns of the result. Only the first row of a group has
    the buffers. `time_id` is the id of the time that was added to the query. Over a changelog, a
    `ranking` says how rows are ranked: then `IS_FORMER` follows the `MARK`.
    """
    merging = _Merging(parts, time_id, make, ranking, is_ranked=ranking is not None)
    return merging.plan(merging.evaluated(leaf))


def ranked_plan(parts: AggregateParts, ranked: Any, time_id: int | None, make: Catalyst) -> Any:
    """Return the same for rows of `rank()` or `dense_rank()`, whose groups are `ranked`.

    There is one more column, `IS_FORMER`, after the `MARK`.
    """
    merging = _Merging(parts, time_id, make, is_ranked=True)
    return merging.plan(merging.with_results(ranked))


class _Merging:
    """Builds the plan over buffers, from the leaf up."""

    def __init__(
        self,
        parts: AggregateParts,
        time_id: int | None,
        make: Catalyst,
        ranking: Ranking | None = None,
        *,
        is_ranked: bool,
    ) -> None:
        self._parts = parts
        self._ranking = ranking
        self._is_ranked = is_ranked
        self._make = make
        self._expressions = make.expressions
        self._state = [*parts.groups, *parts.buffers]
        # Columns that are defined for each group, whether HAVING keeps it or not.
        self._always = {id_of(column) for column in parts.groups}
        if time_id is not None:
            self._always.add(time_id)
        self._kept: Any = None
        self._of_rows: list[Any] = []

    def plan(self, node: Any) -> Any:
        """Return a plan over groups, with what their functions give."""
        for operator in reversed(self._parts.above):
            if kind(operator) == "FilterExec":
                node = self._marked(operator.condition(), node)
            elif kind(operator) == "GenerateExec":
                node = self._exploded(operator, node)
            else:
                node = self._selected(items(operator.projectList()), node)
        top = self._parts.above[0] if self._parts.above else self._parts.final
        kept = self._kept or self._make.alias(self._make.literal(True, "boolean"), HAS_RESULT)
        results = [*map(self._deletable, items(top.output()))]
        return self._project([*self._state, kept, *self._of_rows, *results], node)

    def _with_values(self, leaf: Any) -> Any:
        """Fold the distinct values of each row into its own buffers, and leave them out.

        Spark's aggregates take buffers by their places, so no other column may be among them.
        """
        parts = self._parts
        if not parts.distinct:
            return leaf
        columns, found = folded_columns(
            parts.functions, parts.distinct, parts.buffers_of, self._make
        )
        node = self._project([*self._state, *columns], leaf)
        state = [
            self._make.alias(found[id_of(each)], each.name(), each.exprId())
            if id_of(each) in found
            else each
            for each in self._state
        ]
        return self._project(state, node)

    def _merged(self, leaf: Any) -> Any:
        """Merge the buffers of each group; first and last follow the order of the rows."""
        final, aggregates = self._parts.final, self._make.aggregates
        mode = scala_object(aggregates, "PartialMerge")
        merging = [
            each.copy(each.aggregateFunction(), mode, False, self._make.none, each.resultId())
            for each in items(final.aggregateExpressions())
        ]
        arguments = (
            final.groupingExpressions(),
            self._make.seq(merging),
            final.aggregateAttributes(),
            final.initialInputBufferOffset(),
            self._parts.partial.resultExpressions(),
            leaf,
        )
        if kind(final) != "HashAggregateExec":
            return self._make.hashed(self._make.none, *arguments)
        none, execution = self._make.none, self._make.spark.execution
        return execution.aggregate.HashAggregateExec(none, False, none, *arguments)

    def with_results(self, groups: Any) -> Any:
        """Add what the final aggregate gives to groups with what their functions give.

        In front of NULLIF and BETWEEN, Spark gives a result the id of its function. It leaves out a
        projection whose columns have the ids that are there, so such a result gets another one
        first: of a DECIMAL, it is another value than that of the function.
        """
        results = items(self._parts.final.resultExpressions())
        self._note_always(results)
        taken = {*self._make.questions.ids(groups.output())}
        unlike = [
            self._make.alias(each.child(), each.name())
            if kind(each) == "Alias" and id_of(each) in taken
            else each
            for each in results
        ]
        node = self._project(self._with_state(unlike), groups)
        if all(one is other for one, other in zip(unlike, results, strict=True)):
            return node
        renamed = [
            self._make.alias(one.toAttribute(), other.name(), other.exprId())
            for one, other in zip(unlike, results, strict=True)
        ]
        return self._project(self._with_state(renamed), node)

    def evaluated(self, leaf: Any) -> Any:
        """Merge the buffers of each group, and add what the final aggregate gives to them."""
        merged = self._merged(self._with_values(leaf))
        results = items(self._parts.final.resultExpressions())
        self._note_always(results)
        functions = self._parts.functions
        if any(kind(each) in _BY_AGGREGATE for each in functions):
            return self._by_second_aggregate(results, merged)
        internal = [
            each for function in functions for each in items(function.aggBufferAttributes())
        ]
        renamed = [
            self._make.alias(given, column.name(), column.exprId())
            for given, column in zip(self._parts.buffers, internal, strict=True)
        ]
        node = self._project([*self._state, *renamed], merged)
        values = [
            self._make.alias(function.evaluateExpression(), column.name(), column.exprId())
            for function, column in zip(
                functions, items(self._parts.final.aggregateAttributes()), strict=True
            )
        ]
        node = self._project([*self._state, *values], node)
        return self.with_results(self._with_places(node))

    def _with_places(self, node: Any) -> Any:
        """Rank the versions of the rows of each group, over a changelog."""
        if self._ranking is None:
            return node
        columns = items(self._parts.final.aggregateAttributes())
        (column,) = (
            column
            for function, column in zip(self._parts.functions, columns, strict=True)
            if kind(function) == VERSIONS
        )
        # A column with the same id would be the same to Spark, which leaves out such a projection.
        versions = self._make.alias(column, "__versions")
        others = [each for each in items(node.output()) if id_of(each) != id_of(column)]
        node = self._project([*others, versions], node)
        given = versions.toAttribute()
        for made in with_places(given, column, self._ranking, self._parts.groups, self._make):
            node = self._project([*items(node.output()), *made], node)
        return node

    def _by_second_aggregate(self, results: list[Any], merged: Any) -> Any:
        """Evaluate functions that only an aggregate can: over the one merged row of each group.

        Its buffers are passed on as the first, and only, ones of the group.
        """
        final, aggregates = self._parts.final, self._make.aggregates
        firsts = [
            aggregates.First(buffer, False).toAggregateExpression()
            for buffer in self._parts.buffers
        ]
        passed = [
            self._make.alias(first.resultAttribute(), buffer.name(), buffer.exprId())
            for first, buffer in zip(firsts, self._parts.buffers, strict=True)
        ]
        own = {id_of(column) for column in self._state}
        others = [column for column in results if id_of(column) not in own]
        return self._make.hashed(
            self._make.none,
            final.groupingExpressions(),
            self._make.seq([*items(final.aggregateExpressions()), *firsts]),
            self._make.seq(
                [
                    *items(final.aggregateAttributes()),
                    *(first.resultAttribute() for first in firsts),
                ],
            ),
            final.initialInputBufferOffset(),
            self._make.seq([*self._parts.groups, *passed, *others]),
            merged,
        )

    def _exploded(self, operator: Any, node: Any) -> Any:
        """Make several rows of each group: those of the array of its best rows."""
        place, row = items(operator.generatorOutput())
        output = operator.generatorOutput()
        if self._is_ranked:
            return self._versions(operator, node)
        node = self._linked(
            self._make.spark.execution.GenerateExec(
                operator.generator(), node.output(), operator.outer(), output, node
            )
        )
        return self._with_marks(node, place, [row], [])

    def _versions(self, operator: Any, node: Any) -> Any:
        """Make a row of each version of a row of each group."""
        make, expressions = self._make, self._expressions
        given, array = items(operator.generatorOutput()), operator.generator().child()
        # The optimizer may have taken the one field that the query needs out of the array.
        is_whole = kind(array) == "AttributeReference"
        generator = expressions.PosExplode(array if is_whole else array.child())
        output = make.catalyst.types.DataTypeUtils.toAttributes(generator.elementSchema())
        node = self._linked(
            make.spark.execution.GenerateExec(
                generator, node.output(), operator.outer(), output, node
            )
        )
        place, version = items(output)
        fields = {name: make.field(version, at) for at, name in enumerate((KEPT, NUMBER, ROW))}
        value = version if is_whole else make.field(version, array.ordinal())
        renamed = [
            make.alias(each, column.name(), column.exprId())
            for each, column in zip((place, value), given, strict=True)
        ]
        no = make.literal(False, "boolean")
        is_former = make.alias(expressions.Coalesce(make.seq([fields[KEPT], no])), IS_FORMER)
        node = self._project([*items(node.output()), *renamed, is_former], node)
        marked = [fields[NUMBER], fields[ROW]]
        return self._with_marks(node, given[0], marked, [is_former.toAttribute()])

    def _with_marks(
        self, node: Any, place: Any, marked: Sequence[Any], others: Sequence[Any]
    ) -> Any:
        """Add what tells the rows of a group apart, and keep buffers in the first one only."""
        is_first = self._expressions.EqualTo(place, self._make.literal(0, "int"))
        told_apart = [part for value in marked for part in self._told_apart(value)]
        hashed_row = self._expressions.XxHash64(self._make.seq([*marked, *told_apart]))
        own = [self._make.alias(place, PLACE), self._make.alias(hashed_row, MARK)]
        buffers = {id_of(column) for column in self._parts.buffers}
        columns = [
            self._make.alias(self._make.only_if(is_first, column), column.name(), column.exprId())
            if id_of(column) in buffers
            else column
            for column in items(node.output())
        ]
        self._always.add(id_of(place))
        self._of_rows = [*(column.toAttribute() for column in own), *others]
        return self._project([*columns, *own], node)

    def _told_apart(self, value: Any) -> Iterator[Any]:
        """Yield what Spark's hash of a value leaves out: which parts are null, and where."""
        yield self._expressions.IsNull(value)
        type_ = value.dataType()
        match str(type_.typeName()):
            case "struct":
                for place in range(int(type_.size())):
                    yield from self._told_apart(self._make.field(value, place))
            case "array" | "map":
                yield self._make.as_text(value)

    def _marked(self, condition: Any, node: Any) -> Any:
        """Mark the groups that a filter keeps, rather than drop the others."""
        if self._kept is not None:
            condition = self._expressions.And(self._kept, condition)
        kept = self._make.alias(condition, HAS_RESULT)
        self._kept = kept.toAttribute()
        return self._project([*items(node.output()), kept], node)

    def _selected(self, columns: list[Any], node: Any) -> Any:
        """Compute columns, for the groups that are kept only: others may not be computable."""
        self._note_always(columns)
        if self._kept is not None:
            columns = [self._guarded(column) for column in columns] + [self._kept]
        return self._project(self._with_state([*columns, *self._of_rows]), node)

    def _guarded(self, column: Any) -> Any:
        if kind(column) != "Alias" or id_of(column) in self._always:
            return column
        guarded = self._make.only_if(self._kept, column.child())
        return self._make.with_children(column, [guarded])

    def _deletable(self, column: Any) -> Any:
        """Return a column of a result that is null for a group without one, unless it is the key.

        So is its timestamp, which a deletion needs.
        """
        is_guarded = self._kept is None or id_of(column) not in self._always
        if is_guarded or column.name() not in ("value", "headers"):
            return column
        guarded = self._make.only_if(self._kept, column)
        return self._make.alias(guarded, column.name(), column.exprId())

    def _note_always(self, columns: list[Any]) -> None:
        for column in columns:
            if self._always.issuperset(self._make.questions.ids(column.references().toSeq())):
                self._always.add(id_of(column))

    def _with_state(self, columns: list[Any]) -> list[Any]:
        given = {id_of(column) for column in columns}
        return [each for each in self._state if id_of(each) not in given] + columns

    def _project(self, columns: list[Any], node: Any) -> Any:
        # A column that HAVING makes null may be nullable only here, and not in Spark's own plan.
        questions, output, listed = self._make.questions, node.output(), self._make.seq(columns)
        places = {id_: place for place, id_ in enumerate(questions.ids(output))}
        parts = zip(columns, questions.names(listed), questions.ids(listed), strict=True)
        columns = [
            output.apply(places[id_]) if name == "AttributeReference" and id_ in places else column
            for column, name, id_ in parts
        ]
        return self._linked(self._make.spark.execution.ProjectExec(self._make.seq(columns), node))

    def _linked(self, made: Any) -> Any:
        # Spark's rules ask each operator of the planner which logical one it comes from.
        made.setLogicalLink(self._parts.final.logicalLink().get())
        return made


def _not_split(node: Any) -> QueryError:
    return QueryError(
        f"Spark plans a {node.nodeName()} around GROUP BY or row_number(), but only SELECT, HAVING "
        "and WHERE can follow: put the rest into a processor after this one"
    )

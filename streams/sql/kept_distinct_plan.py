"""Plans of functions with DISTINCT whose values a store keeps, for both halves of an aggregation.

A row of a batch has, for each list of arguments, the distinct values of its records. The bits of a
value say which functions are to see it: those of `FILTER (WHERE …)` see some only. The caller takes
away what they have seen in former batches, and the merge folds the rest into their buffers.

Over a changelog, a row has all values, each with its change. The caller keeps them. For a minimum
or maximum, it gives the first and the last value that a group has now, which the merge folds into
empty buffers. Functions with DISTINCT are signed sums there: it gives the values that a group gets
or loses, each with 1 or -1 in place of the change. For variances and collections, it fills the
buffers itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst, replaced, scala_object
from kafka_pipeline.streams.sql.distinct_plan import lambda_of, variable
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import expressions, id_of, kind
from kafka_pipeline.streams.sql.state_shape import IS_THERE, LIST, Reading

MOST_FUNCTIONS = 62
"""How many functions share the values of their arguments: a BIGINT has a bit for each."""

OF_ENDS: dict[str, Reading] = {"Min": "first", "MinBy": "first", "Max": "last", "MaxBy": "last"}
"""The classes of functions over a changelog that see the smallest or the largest value."""

OF_MOMENTS = (
    "Corr",
    "CovPopulation",
    "CovSample",
    "Kurtosis",
    "Skewness",
    "StddevPop",
    "StddevSamp",
    "VariancePop",
    "VarianceSamp",
)
"""The classes of functions of central moments, which are computed from sums over a changelog."""

COLLECTION = "First"
"""The class of functions over a changelog that are made of `collect_list` and `collect_set`.

Its argument is an array of a value, with `array_distinct` around it for a set.
"""

VERSIONS = "Last"
"""The class of the function over a changelog that ranks rows; see `ranked_rows`.

Its argument is an array of a version of a row.
"""

_FILLED = ("list", "moments", "set", "versions")
"""The readings whose buffers the caller fills."""

_MOMENTS = {"n": (), "m2": (0, 0), "m3": (0,) * 3, "m4": (0,) * 4}
_MOMENTS |= {"ck": (0, 1), "xMk": (0, 0), "yMk": (1, 1)}
"""The central moments that the buffers of Spark's functions have, by the places of arguments.

The others have means, which only Spark's way to merge buffers needs: for that, 0 will do.
"""


@dataclass(frozen=True, slots=True)
class DistinctSet:
    """Distinct values of some arguments, and the functions that see them.

    `functions` are indexes; their order is that of the bits of a value. `collector` is the
    aggregate that collects the values of a batch as structs: the arguments, and then the bits.
    `column` is the attribute of the values in rows of a batch. Over a changelog, the change of the
    row is the last argument, there are no bits, and all functions see the values of the `reading`.
    """

    arguments: Sequence[Any]
    functions: Sequence[int]
    collector: Any
    column: Any
    reading: Reading | None = None

    @property
    def is_folded(self) -> bool:
        """Whether the merge folds values into buffers, rather than the caller."""
        return self.reading not in _FILLED


def distinct_sets(
    partials: Sequence[Any], arguments: Collection[int], change: Any | None, make: Catalyst
) -> list[DistinctSet]:
    """Return the sets of the functions that have these columns as arguments, in their order.

    `change` is the column of the change of each row, over a changelog.
    """
    found = dict[tuple[tuple[int, ...], Reading, int], list[int]]()
    columns = dict[int, Any]()
    for at, each in enumerate(partials):
        own = _arguments(each.aggregateFunction(), arguments)
        if own:
            columns |= own
            reading, part = _reading(each.aggregateFunction()), 0
            if reading in OF_ENDS.values():
                reading = "ends"
            while len(found.setdefault(((*own,), reading, part), [])) == MOST_FUNCTIONS:
                part += 1
            found[(*own,), reading, part].append(at)
    sets = []
    for number, ((ids, *_), indexes) in enumerate(found.items()):
        given, name = [columns[id_] for id_ in ids], f"__values_{number}"
        if change is None:
            sets.append(_set(given, partials, indexes, name, make))
        else:
            sets.append(_set_of_changes([*given, change], partials, indexes, name, make))
    return sets


def _arguments(function: Any, arguments: Collection[int]) -> dict[int, Any]:
    return {
        id_of(each): each
        for child in items(function.children())
        for each in expressions([child])
        if kind(each) == "AttributeReference" and id_of(each) in arguments
    }


def _set(
    arguments: Sequence[Any],
    partials: Sequence[Any],
    functions: Sequence[int],
    name: str,
    make: Catalyst,
) -> DistinctSet:
    bits = make.whole(0)
    for place, at in enumerate(functions):
        bit, condition = make.whole(1 << place), partials[at].filter()
        if condition.isDefined():
            bit = make.expressions.If(condition.get(), bit, make.whole(0))
        bits = make.expressions.BitwiseOr(bits, bit)
    some = make.expressions.GreaterThan(bits, make.whole(0))
    values = make.aggregates.CollectSet(make.struct([*arguments, bits]))
    collector, column = _collected(values, some, name, make)
    return DistinctSet(arguments, functions, collector, column)


def _set_of_changes(
    arguments: Sequence[Any],
    partials: Sequence[Any],
    functions: Sequence[int],
    name: str,
    make: Catalyst,
) -> DistinctSet:
    """Return the set of all values; the last one of the arguments is a change.

    A row is not in it if the argument before is null, as no function counts it. For moments, that
    holds for any argument.
    """
    readings = {_reading(partials[at].aggregateFunction()) for at in functions}
    reading: Reading = readings.pop() if len(readings) == 1 else "ends"
    is_there = make.expressions.IsNotNull(arguments[-2])
    for each in arguments[:-2] if reading == "moments" else ():
        is_there = make.expressions.And(make.expressions.IsNotNull(each), is_there)
    values = make.aggregates.CollectList(make.struct(arguments))
    collector, column = _collected(values, is_there, name, make)
    return DistinctSet(arguments, functions, collector, column, reading)


def _reading(function: Any) -> Reading:
    """Return which values a function over a changelog sees."""
    name = kind(function)
    if name in OF_MOMENTS:
        return "moments"
    if name == COLLECTION:
        return "set" if kind(function.child()) == "ArrayDistinct" else "list"
    if name == VERSIONS:
        return "versions"
    return OF_ENDS.get(name, "changes")


def filled_with(function: Any, set_: DistinctSet) -> list[str | None]:
    """Return what the caller fills the buffers of a function with; see `StateShape.fills`.

    `None` is a buffer that stays as it is without records.
    """
    if set_.is_folded:
        return [None] * int(function.aggBufferAttributes().size())
    if set_.reading != "moments":
        return [LIST, IS_THERE]
    ids = [id_of(each) for each in set_.arguments]
    places = [ids.index(id_of(child)) for child in items(function.children())]
    names = [str(each.name()) for each in items(function.aggBufferAttributes())]
    return [
        "".join(str(places[factor]) for factor in _MOMENTS[name]) if name in _MOMENTS else None
        for name in names
    ]


def _collected(values: Any, condition: Any, name: str, make: Catalyst) -> tuple[Any, Any]:
    """Return the aggregate that collects values where a condition holds, and its column."""
    collector = values.toAggregateExpression(False, make.some(condition))
    return collector, make.alias(collector.resultAttribute(), name).toAttribute()


def collecting_plan(
    partial: Any, sets: Sequence[DistinctSet], buffers: Sequence[Any], make: Catalyst
) -> Any:
    """Return the plan that gives groups, `buffers`, and the values of each set as a list.

    `partial` is Spark's partial aggregate. Functions with DISTINCT see nothing in it.
    """
    mode = scala_object(make.aggregates, "Partial")
    never = make.some(make.literal(False, "boolean"))
    blind = {at for each in sets for at in each.functions}
    functions = [
        _copied(each, mode, never, make) if at in blind else each
        for at, each in enumerate(items(partial.aggregateExpressions()))
    ]
    collectors = [_copied(each.collector, mode, each.collector.filter(), make) for each in sets]
    collected = [
        column
        for each in collectors
        for column in items(each.aggregateFunction().inputAggBufferAttributes())
    ]
    groups = [each.toAttribute() for each in items(partial.groupingExpressions())]
    first = make.hashed(
        make.none,
        partial.groupingExpressions(),
        make.seq([*functions, *collectors]),
        make.seq(
            [
                column
                for each in [*functions, *collectors]
                for column in items(each.aggregateFunction().aggBufferAttributes())
            ]
        ),
        partial.initialInputBufferOffset(),
        make.seq([*items(partial.resultExpressions()), *collected]),
        items(partial.children())[0],
    )
    return _as_lists(first, groups, sets, buffers, make)


def _as_lists(
    collected: Any,
    groups: Sequence[Any],
    sets: Sequence[DistinctSet],
    buffers: Sequence[Any],
    make: Catalyst,
) -> Any:
    """Make lists of collected values, which are bytes of Spark's so far; groups have one row."""
    mode = scala_object(make.aggregates, "Final")
    finals = [_copied(each.collector, mode, make.none, make) for each in sets]
    firsts = [make.aggregates.First(each, False).toAggregateExpression() for each in buffers]
    passed = [
        make.alias(first.resultAttribute(), buffer.name(), buffer.exprId())
        for first, buffer in zip(firsts, buffers, strict=True)
    ]
    lists = [
        make.alias(each.collector.resultAttribute(), each.column.name(), each.column.exprId())
        for each in sets
    ]
    return make.hashed(
        make.none,
        make.seq(groups),
        make.seq([*finals, *firsts]),
        make.seq([each.resultAttribute() for each in [*finals, *firsts]]),
        len(groups) + len(buffers),
        make.seq([*groups, *passed, *lists]),
        collected,
    )


def _copied(expression: Any, mode: Any, condition: Any, make: Catalyst) -> Any:
    return expression.copy(
        expression.aggregateFunction(), mode, False, condition, expression.resultId()
    )


def folded_columns(
    functions: Sequence[Any],
    sets: Sequence[DistinctSet],
    buffers_of: Sequence[Sequence[Any]],
    make: Catalyst,
) -> tuple[list[Any], dict[int, Any]]:
    """Return columns with the buffers of all functions of each set, into which values are folded.

    `buffers_of` has the columns of each function's buffers. The second value has an expression of
    the columns for each of these buffers, by its id.
    """
    columns, found = [], dict[int, Any]()
    for number, each in enumerate(sets):
        if not each.is_folded:
            continue
        buffers = [buffer for at in each.functions for buffer in buffers_of[at]]
        folded = make.alias(_folded(functions, each, buffers, make), f"__folded_{number}")
        columns.append(folded)
        found |= {
            id_of(buffer): make.field(folded.toAttribute(), place)
            for place, buffer in enumerate(buffers)
        }
    return columns, found


def _folded(functions: Sequence[Any], set_: DistinctSet, buffers: Sequence[Any], make: Any) -> Any:
    """Return the buffers of a set's functions after the values of the row."""
    ex = make.expressions
    zero = make.struct(buffers)
    value = variable("value", set_.collector.aggregateFunction().child().dataType(), make)
    state = variable("buffers", zero.dataType().asNullable(), make)
    arguments = {id_of(each): make.field(value, at) for at, each in enumerate(set_.arguments)}
    updated = list[Any]()
    for place, at in enumerate(set_.functions):
        own = items(functions[at].aggBufferAttributes())
        known = arguments | {
            id_of(each): make.field(state, len(updated) + index) for index, each in enumerate(own)
        }

        def of_row(expression: Any, known: dict[int, Any] = known) -> Any | None:
            return (
                known.get(id_of(expression)) if kind(expression) == "AttributeReference" else None
            )

        updates = [
            replaced(each, of_row, make) for each in items(functions[at].updateExpressions())
        ]
        if set_.reading is None:
            bits, bit = make.field(value, len(set_.arguments)), make.whole(1 << place)
            sees = ex.EqualTo(ex.BitwiseAnd(bits, bit), bit)
            updates = [
                ex.If(sees, new, known[id_of(old)]) for new, old in zip(updates, own, strict=True)
            ]
        updated += updates
    # Each function needs variables of its own, or Spark cannot compile them.
    last = variable("buffers", state.dataType(), make)
    return ex.ArrayAggregate(
        set_.column,
        zero,
        lambda_of(make.struct(updated), make, state, value),
        lambda_of(last, make, last),
    )

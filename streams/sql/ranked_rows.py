"""Rewrites functions that rank rows as an aggregate, on Spark's analyzed plans.

They are `rank()` and `dense_rank()`, and `row_number()` without a limit. A group keeps all rows
whose rank is within the limit, in an array of structs: whether the row was
kept before the batch, its place, and the row, which begins with a struct of what ORDER BY compares.
Of a batch, only rows within the limit come into it. `ranked_plan` ranks them together with those
that were kept.

Over a changelog, a row that goes makes room for others. So a store keeps all rows of a group, and
gives them as they were before the batch and as they are now. `with_places` ranks both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.distinct_plan import bounded, lambda_of, variable
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import PlanStep

RANKS = ("rank", "dense_rank")
"""The functions that give rows that tie one place."""

ALL_ROWS = 2**31 - 1
"""The limit of a query that has none: the largest number that a row can have."""

KEPT, NUMBER, ROW = "kept", "place", "row"
"""The fields of a version of a row."""

SORTED_BY = "by"
"""The first field of a row: what ORDER BY compares."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How rows are ranked: a function of SQL, and the largest rank that is kept.

    A group with more than `max_rows` rows is an error. `window` is the operator that ranks rows.
    """

    function: str
    size: int
    max_rows: int
    window: Any

    @property
    def limited(self) -> str:
        """The function with its limit, as the content of a state has it."""
        limit = "of all rows" if self.size == ALL_ROWS else f"up to {self.size}"
        return f"{self.function}() {limit}"


def collected(
    ranking: Ranking,
    child: Any,
    groups: Sequence[Any],
    columns: tuple[Sequence[Any], Sequence[Any], Sequence[Any]],
    make: Catalyst,
    *,
    is_changelog: bool = False,
) -> Any:
    """Return an Aggregate that gives groups, and an array of their rows.

    `columns` are those that sort the rows, those that order rows that tie, and those that are kept
    with them. `over_ranks` has to rank the rows. Over a changelog, all rows are in the array, and
    `with_places` ranks them. A null follows, as a group has to have a row even if it has none left.
    """
    sorting, ties, kept = columns
    # A struct needs a field.
    by = make.struct(sorting or [make.literal(0, "int")])
    names = [SORTED_BY, *([None] * len(ties)), *(str(column.name()) for column in kept)]
    row = make.struct([by, *ties, *kept], names)
    is_kept, place = make.literal(False, "boolean"), _place(ranking)
    if is_changelog:
        version = _version(is_kept, make.literal(0, "int"), row, make)
        all_rows = make.aggregates.CollectList(version).toAggregateExpression()
        nothing = make.expressions.Literal.create(None, version.dataType())
        last = make.expressions.CreateArray(make.seq([nothing]))
        found = make.expressions.Concat(make.seq([all_rows, last]))
        return make.aggregate(groups, [*groups, make.alias(found, "__ranked")], child)
    version = _version(is_kept, place, row, make)
    is_within = make.expressions.LessThanOrEqual(place, make.literal(ranking.size, "int"))
    # Nulls are left out. All rows count for the time of the group.
    within = make.only_if(is_within, version)
    found = make.aggregates.CollectList(within).toAggregateExpression()
    return make.aggregate(groups, [*groups, make.alias(found, "__ranked")], child)


def over_ranks(ranking: Ranking, aggregate: Any, make: Catalyst) -> Any:
    """Return an Aggregate over rows with their ranks."""
    ranked = make.with_children(ranking.window, items(aggregate.children()))
    return make.with_children(aggregate, [ranked])


def with_places(
    given: Any, wanted: Any, ranking: Ranking, groups: Sequence[Any], make: Catalyst
) -> list[list[Any]]:
    """Return the columns, step by step, that turn all versions of rows into those within the limit.

    `given` is an array of rows as they were, which are kept ones, and as they are. The last column
    is the one that is `wanted`: the former rows and then those of now, each in the order of their
    places. More than `max_rows` rows are an error.
    """
    expressions = make.expressions

    def where(*, is_former: bool) -> Any:
        version = _element(given, make)
        kept = make.field(version, 0)
        condition = kept if is_former else expressions.Not(kept)
        return expressions.ArrayFilter(given, lambda_of(condition, make, version))

    former, now = (make.alias(where(is_former=each), f"__rows_{each}") for each in (True, False))
    rows = [former.toAttribute(), now.toAttribute()]
    rows[1] = bounded(rows[1], f"{ranking.function}()", groups, ranking.max_rows, make)
    ordered = [
        make.alias(expressions.SortArray(each, make.literal(True, "boolean")), f"__ordered_{at}")
        for at, each in enumerate(rows)
    ]
    starts = [
        make.alias(_starts(each.toAttribute(), ranking, make), f"__starts_{at}")
        for at, each in enumerate(ordered)
    ]
    placed = [
        _placed(each.toAttribute(), begins.toAttribute(), ranking, make)
        for each, begins in zip(ordered, starts, strict=True)
    ]
    found = make.alias(expressions.Concat(make.seq(placed)), wanted.name(), wanted.exprId())
    return [[former, now], ordered, starts, [found]]


def _starts(rows: Any, ranking: Ranking, make: Catalyst) -> Any:
    """Return where rows begin, in an array in order, that do not tie with the one before.

    That is an array of numbers from 1. `row_number()` takes no rows for equal.
    """
    expressions = make.expressions
    row, index = _element(rows, make), variable("index", make.type("int"), make)
    one = make.literal(1, "int")
    number = expressions.Add(index, one)
    if ranking.function not in RANKS:
        return expressions.ArrayTransform(rows, lambda_of(number, make, row, index))
    # Null in front of the first one.
    before = expressions.GetArrayItem(rows, expressions.Subtract(index, one), False)
    ties = expressions.EqualNullSafe(*(make.field(make.field(x, 2), 0) for x in (row, before)))
    zero = make.literal(0, "int")
    starts = expressions.ArrayTransform(
        rows, lambda_of(expressions.If(ties, zero, number), make, row, index)
    )
    start = variable("start", make.type("int"), make)
    is_one = lambda_of(expressions.GreaterThan(start, zero), make, start)
    return expressions.ArrayFilter(starts, is_one)


def _placed(rows: Any, starts: Any, ranking: Ranking, make: Catalyst) -> Any:
    """Return the rows of an array in order that are within the limit, with their places."""
    expressions, int_ = make.expressions, make.type("int")
    one = make.literal(1, "int")
    start, index = variable("start", int_, make), variable("index", int_, make)
    next_ = expressions.Add(index, one)
    end = expressions.Add(expressions.Size(rows, False), one)
    end = expressions.Coalesce(make.seq([expressions.GetArrayItem(starts, next_, False), end]))
    tied = expressions.Slice(rows, start, expressions.Subtract(end, start))
    row = _element(rows, make)
    place = next_ if ranking.function == "dense_rank" else start
    version = _version(make.field(row, 0), place, make.field(row, 2), make)
    each = expressions.ArrayTransform(tied, lambda_of(version, make, row))
    if ranking.size != ALL_ROWS:
        is_within = expressions.LessThanOrEqual(place, make.literal(ranking.size, "int"))
        each = make.only_if(is_within, each)
    found = expressions.ArrayTransform(starts, lambda_of(each, make, start, index))
    if ranking.size != ALL_ROWS:
        tied_rows = _element(found, make)
        is_there = lambda_of(expressions.IsNotNull(tied_rows), make, tied_rows)
        found = expressions.ArrayFilter(found, is_there)
    return expressions.Flatten(found)


def _element(array: Any, make: Catalyst) -> Any:
    """Return a variable for an element of an array."""
    return variable("row", array.dataType().elementType(), make)


def _version(is_kept: Any, place: Any, row: Any, make: Catalyst) -> Any:
    return make.struct([is_kept, place, row], [KEPT, NUMBER, ROW])


def _place(ranking: Ranking) -> Any:
    return items(ranking.window.windowExpressions())[0].toAttribute()


def versions(
    aggregate: Any,
    groups: Sequence[Any],
    derived: Sequence[Any],
    kept: tuple[Sequence[Any], int],
    place: Any,
    make: Catalyst,
) -> list[PlanStep]:
    """Return the operators that turn the array of an Aggregate into rows, from the result down.

    `kept` are the columns that are kept, and how many order rows that tie.
    """
    generate = array_exploded(aggregate, make)
    _, version = items(generate.generatorOutput())
    row, (columns, ties) = make.field(version, 2), kept
    given = [
        *groups,
        *derived,
        make.alias(make.field(version, 1), place.name(), place.exprId()),
        *(
            make.alias(make.field(row, 1 + ties + at), column.name(), column.exprId())
            for at, column in enumerate(columns)
        ),
    ]
    project = make.project(given, generate)
    return [PlanStep(project, [generate], 0), PlanStep(generate, [aggregate], 0)]


def array_exploded(aggregate: Any, make: Catalyst) -> Any:
    """Return the operator that turns the array of an Aggregate, its last column, into rows.

    It gives the index of each item, and the item.
    """
    generator = make.expressions.PosExplode(items(aggregate.output())[-1])
    output = make.catalyst.types.DataTypeUtils.toAttributes(generator.elementSchema())
    # Outer, or Spark would add a filter for empty arrays, of which there are none.
    return make.logical.Generate(generator, make.nothing, True, make.none, output, aggregate)

"""Rewrites functions that rank rows as an aggregate, on Spark's analyzed plans.

They are `rank()` and `dense_rank()`, and `row_number()` without a limit. A group keeps all rows
whose rank is within the limit, in an array of structs: whether the row was
kept before the batch, its place, and the row, which begins with a struct of what ORDER BY compares.
Of a batch, only rows within the limit come into it. `ranked_plan` ranks them together with those
that were kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
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
) -> Any:
    """Return an Aggregate that gives groups, and an array of their rows.

    `columns` are those that sort the rows, those that order rows that tie, and those that are kept
    with them. `over_ranks` has to rank the rows.
    """
    sorting, ties, kept = columns
    # A struct needs a field.
    by = make.struct(sorting or [make.literal(0, "int")])
    names = [SORTED_BY, *([None] * len(ties)), *(str(column.name()) for column in kept)]
    row = make.struct([by, *ties, *kept], names)
    is_kept, place = make.literal(False, "boolean"), _place(ranking)
    version = make.struct([is_kept, place, row], [KEPT, NUMBER, ROW])
    is_within = make.expressions.LessThanOrEqual(place, make.literal(ranking.size, "int"))
    # Nulls are left out. All rows count for the time of the group.
    within = make.only_if(is_within, version)
    found = make.aggregates.CollectList(within).toAggregateExpression()
    return make.aggregate(groups, [*groups, make.alias(found, "__ranked")], child)


def over_ranks(ranking: Ranking, aggregate: Any, make: Catalyst) -> Any:
    """Return an Aggregate over rows with their ranks."""
    ranked = make.with_children(ranking.window, items(aggregate.children()))
    return make.with_children(aggregate, [ranked])


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
    generator = make.expressions.PosExplode(items(aggregate.output())[-1])
    output = make.catalyst.types.DataTypeUtils.toAttributes(generator.elementSchema())
    # Outer, or Spark would add a filter for empty arrays, of which there are none.
    generate = make.logical.Generate(generator, make.nothing, True, make.none, output, aggregate)
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

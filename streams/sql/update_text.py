"""Reads from the text of a query whether it sends updates, and whether it can take them.

A query with GROUP BY that sends a result with each change sends the same group again and again. A
query that aggregates those results would count each of them as one more record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from sqlglot import exp

from kafka_pipeline.streams.sql.query_tree import parsed, quiet

_OF_VALUES = (
    exp.ArgMax,
    exp.ArgMin,
    exp.ArrayAgg,
    exp.ArrayUniqueAgg,
    exp.Corr,
    exp.CovarPop,
    exp.CovarSamp,
    exp.DenseRank,
    exp.Distinct,
    exp.Kurtosis,
    exp.Max,
    exp.Min,
    exp.Rank,
    exp.RowNumber,
    exp.Skewness,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Variance,
    exp.VariancePop,
)
"""What a store keeps the values of the rows of a changelog for."""

GROWING = (exp.Max, exp.Count, exp.CountIf, exp.ApproxDistinct)
"""The functions whose result for a group never decreases."""


class Direction(Enum):
    """The direction in which the results of a group change, if they are monotonic."""

    UP = exp.Max
    DOWN = exp.Min


@dataclass(frozen=True, slots=True)
class Updates:
    """How a query sends and takes updates.

    `replaces` says that a later result of a group replaces the former ones; SELECT DISTINCT sends
    one result only. `gives` is the direction of the aggregates, which are the columns `moving`.
    `takes` is the direction in which its input may change without harm, since a maximum ignores
    former, smaller values; `groups` are the grouping columns in that case. `keeps_values` says that
    a function needs the values of all rows, if some of them may be taken out again.
    """

    replaces: bool
    gives: Direction | None = None
    moving: frozenset[str] = frozenset()
    takes: Direction | None = None
    groups: frozenset[str] = frozenset()
    keeps_values: bool = False

    def may_follow(self, before: Updates) -> bool:
        """Return whether the results are right if the input is the updates of another query."""
        is_one_way = self.takes is not None and self.takes is before.gives
        # A later result of a group has a later time.
        return is_one_way and not self.groups & {*before.moving, "timestamp"}


def read_updates(query: str, tables: Collection[str]) -> Updates:
    """Return how a query that groups records gives and takes updates.

    The query must be one that `read_groups` can read. Where its text does not show that values go
    one way, they are taken not to.
    """
    with quiet():
        tree = parsed(query, tables)
    if not tree.find(exp.Group, exp.Window):
        return Updates(replaces=False)
    keeps_values = any(map(_is_of_values, tree.walk()))
    if not isinstance(tree, exp.Select) or len(list(tree.find_all(exp.Select))) > 1:
        return Updates(replaces=True, keeps_values=keeps_values)
    found = [each.unalias() for each in tree.selects]
    moving = [
        each for each, value in zip(tree.selects, found, strict=True) if value.find(exp.AggFunc)
    ]
    group = tree.args.get("group")
    columns = [] if group is None else group.expressions
    are_plain = bool(columns) and all(isinstance(each, exp.Column) for each in columns)
    has_more = any(map(tree.args.get, ("where", "joins", "laterals")))
    return Updates(
        replaces=True,
        gives=None if tree.args.get("having") else _gives([each.unalias() for each in moving]),
        moving=frozenset(each.alias_or_name for each in moving),
        takes=_takes(tree) if are_plain and not has_more else None,
        groups=frozenset(each.name for each in columns),
        keeps_values=keeps_values,
    )


def _is_of_values(node: exp.Expr) -> bool:
    is_std = isinstance(node, exp.Anonymous) and node.name.lower() == "std"
    return is_std or isinstance(node, _OF_VALUES)


def _gives(aggregates: list[exp.Expr]) -> Direction | None:
    if all(isinstance(each, GROWING) for each in aggregates):
        return Direction.UP
    return Direction.DOWN if all(isinstance(each, exp.Min) for each in aggregates) else None


def _takes(tree: exp.Select) -> Direction | None:
    if tree.find(exp.Filter, exp.Window):
        return None
    functions = list(tree.find_all(exp.AggFunc))
    for move in Direction:
        if functions and all(type(each) is move.value and _is_plain(each) for each in functions):
            return move
    return None


def _is_plain(function: exp.Expr) -> bool:
    """Return whether a function takes a column as it is, or cast to another type."""
    value = function.this
    return isinstance(value.this if isinstance(value, exp.Cast) else value, exp.Column)

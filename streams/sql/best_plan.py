"""Rewrites the n best rows of groups as an aggregate, on Spark's analyzed plans.

`row_number() OVER (PARTITION BY … ORDER BY …) AS place` with `WHERE place <= n` becomes an
Aggregate by the columns of PARTITION BY. Its function is Spark's CollectTopK, a queue of n rows.
The array that it gives is exploded, so the operators above see the columns that they saw before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.best_limit import most_rows
from kafka_pipeline.streams.sql.best_order import order_name, sorting_columns
from kafka_pipeline.streams.sql.origins import id_of, nodes_to_input
from kafka_pipeline.streams.sql.plan import (
    Step,
    alias,
    field_of,
    input_column,
    items,
    kind,
    literal,
    refusal,
    seq,
    struct_of,
    with_column,
)
from kafka_pipeline.streams.sql.spec import QueryError, no_rank

_TIES = ("timestamp", "partition", "offset")
"""The columns of records that decide between rows which ORDER BY takes for equal."""


@dataclass(frozen=True, slots=True)
class BestRows:
    """A query whose `row_number()` has become an Aggregate.

    `above` are the operators above the Aggregate, from the result down. `size` is how many rows a
    group has at most, and `order` names the types and directions of ORDER BY. `loses_rows` says
    that a place may lose its result while the key to delete is unknown.
    """

    aggregate: Any
    above: list[Step]
    size: int
    order: Sequence[str]
    loses_rows: bool


def best_rows(
    above: list[Step], window: Any, rdd_id: int, max_collected: int, jvm: Any
) -> BestRows:
    """Rewrite a `row_number()` and the operators above it, which are from the result down.

    Raises `QueryError` with the reason if it has no groups, if no condition above limits their
    rows, or if these cannot be kept.
    """
    place, groups = items(window.windowExpressions())[0].toAttribute(), _groups(window)
    size = most_rows(above, place, max_collected, rdd_id)
    top = above[0].node
    above, used = _pruned(above, jvm)
    child = items(window.children())[0]
    wanted = [
        column
        for column in items(child.output())
        if id_of(column) in used - {id_of(each) for each in groups}
    ]
    derived = _derived(wanted, groups, child, rdd_id, jvm)
    known = {id_of(column) for column in (*groups, *derived)}
    # By name, so that another order of columns in SELECT does not change what is kept.
    kept = sorted(
        (column for column in wanted if id_of(column) not in known),
        key=lambda column: str(column.name()),
    )
    _require_comparable(kept, jvm)
    orders = [each for each in items(window.orderSpec()) if not each.child().foldable()]
    sorting = [part for each in orders for part in sorting_columns(each, jvm)]
    aggregate = _aggregate(child, groups, (sorting, kept), size, rdd_id, jvm)
    first_kept = len(sorting) + len(_TIES)
    places = [(column, first_kept + index) for index, column in enumerate(kept)]
    exploded = _exploded(aggregate, groups, derived, places, place, jvm)
    return BestRows(
        aggregate,
        [*above, *exploded],
        size,
        [order_name(each) for each in orders],
        _loses_rows(above, top, known, place, size, jvm),
    )


def require_row_number(window: Any) -> None:
    """Raise `QueryError` unless a Window operator has one `row_number()`, and nothing else."""
    made = items(window.windowExpressions())
    for each in made:
        function = each.child().windowFunction()
        if kind(function) in ("Rank", "DenseRank"):
            raise QueryError(no_rank(str(function.prettyName())))
        if kind(function) != "RowNumber":
            raise refusal(window)
    if len(made) > 1:
        raise QueryError("a query can number rows once: leave out the other row_number()")


def _groups(window: Any) -> list[Any]:
    """Return the columns of PARTITION BY, without constants."""
    columns = {id_of(each): each for each in items(window.partitionSpec()) if not each.foldable()}
    if not columns:
        raise QueryError(
            "row_number() without a column in PARTITION BY would number the rows of a partition of "
            "the topic, not those of the whole topic: add PARTITION BY"
        )
    return list(columns.values())


def _pruned(above: Sequence[Step], jvm: Any) -> tuple[list[Step], set[int]]:
    """Return the operators without columns that nothing uses, and the ids of what they use."""
    used = {id_of(column) for column in items(above[0].node.output())}
    pruned = list[Step]()
    for step in above:
        node = step.node
        if kind(node) == "Project":
            columns = [each for each in items(node.projectList()) if id_of(each) in used]
            make = jvm.org.apache.spark.sql.catalyst.plans.logical.Project
            node = make(seq(jvm, columns), node.child())
            used = set()
        used |= _used_by(node)
        pruned.append(Step(node, step.children, step.index))
    return pruned, used


def _used_by(node: Any) -> set[int]:
    """Return the ids of the columns that an operator or an expression uses."""
    return {id_of(column) for column in items(node.references().toSeq())}


def _derived(
    wanted: Sequence[Any], groups: Sequence[Any], child: Any, rdd_id: int, jvm: Any
) -> list[Any]:
    """Return columns that are made of those of PARTITION BY alone, such as the window's start.

    They are the same for all rows of a group.
    """
    known = {id_of(column) for column in groups}
    found = []
    for column in wanted:
        value = _made_of(known, column, child, rdd_id, jvm)
        if value is not None:
            found.append(alias(value, column.name(), jvm, column.exprId()))
    return found


def _made_of(known: set[int], column: Any, child: Any, rdd_id: int, jvm: Any) -> Any | None:
    """Return the expression of known columns that makes a column; `None` if there is none."""
    wanted = id_of(column)
    for node in nodes_to_input(child, rdd_id):
        if kind(node) != "Project":
            continue
        for given in items(node.projectList()):
            if kind(given) != "Alias" or id_of(given) != wanted:
                continue
            value = given.child()
            if _used_by(value) <= known and not _needs_operators(value, jvm):
                return value
            if kind(value) != "AttributeReference":
                return None
            wanted = id_of(value)
    return None


def _needs_operators(expression: Any, jvm: Any) -> bool:
    """Whether Spark runs a part of an expression in an operator of its own."""
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return _has_subquery(expression, jvm) or bool(expression.containsPattern(patterns.PYTHON_UDF()))


def _has_subquery(expression: Any, jvm: Any) -> bool:
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return bool(expression.containsPattern(patterns.PLAN_EXPRESSION()))


def _require_comparable(columns: Sequence[Any], jvm: Any) -> None:
    ordering = jvm.org.apache.spark.sql.catalyst.expressions.RowOrdering
    for column in columns:
        if not ordering.isOrderable(column.dataType()):
            name = column.name()
            raise QueryError(
                f"{name} is of the type {column.dataType().catalogString()}, which cannot be kept "
                "with the best rows, as its values cannot be compared: make text or an array of "
                f"it below row_number(), such as to_json({name}) or map_entries({name})"
            )


def _aggregate(
    child: Any,
    groups: Sequence[Any],
    columns: tuple[Sequence[Any], Sequence[Any]],
    size: int,
    rdd_id: int,
    jvm: Any,
) -> Any:
    """Return an Aggregate that gives groups, and an array of their best rows.

    `columns` are those that sort the rows, and those that are kept with them.
    """
    sorting, kept = columns
    try:
        for name in _TIES:
            child = with_column(child, name, rdd_id, jvm)
    except QueryError as error:
        raise QueryError(
            "an operator below row_number() hides which record a row stems from, which decides "
            "between rows that tie: put that part into a sql processor before this one"
        ) from error
    ties = [input_column(child, name, rdd_id) for name in _TIES]
    names = [None] * (len(sorting) + len(ties)) + [str(column.name()) for column in kept]
    row = struct_of([*sorting, *ties, *kept], jvm, names)
    aggregates = jvm.org.apache.spark.sql.catalyst.expressions.aggregate
    # Reversed, the queue keeps the smallest rows and gives them in ascending order.
    best = aggregates.CollectTopK(row, size, True).toAggregateExpression()
    make = jvm.org.apache.spark.sql.catalyst.plans.logical.Aggregate
    given = [*groups, alias(best, "__best", jvm)]
    return make(seq(jvm, [*groups]), seq(jvm, given), child, jvm.scala.Option.empty())


def _exploded(
    aggregate: Any,
    groups: Sequence[Any],
    derived: Sequence[Any],
    kept: Sequence[tuple[Any, int]],
    place: Any,
    jvm: Any,
) -> list[Step]:
    """Return the operators that turn the array of an Aggregate into rows, from the result down.

    `kept` are columns, with the place of their field in a row.
    """
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    expressions = jvm.org.apache.spark.sql.catalyst.expressions
    generator = expressions.PosExplode(items(aggregate.output())[-1])
    types = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils
    output = types.toAttributes(generator.elementSchema())
    none = jvm.scala.Option.empty()
    # Outer, or Spark would add a filter for empty arrays, of which there are none.
    generate = logical.Generate(generator, seq(jvm, []), True, none, output, aggregate)
    index, row = items(generate.generatorOutput())
    number = expressions.Add(index, literal(1, "int", jvm))
    columns = [
        *groups,
        *derived,
        alias(number, place.name(), jvm, place.exprId()),
        *(
            alias(field_of(row, at, jvm), column.name(), jvm, column.exprId())
            for column, at in kept
        ),
    ]
    project = logical.Project(seq(jvm, columns), generate)
    return [Step(project, [generate], 0), Step(generate, [aggregate], 0)]


def _loses_rows(
    above: Sequence[Step], top: Any, known: set[int], place: Any, size: int, jvm: Any
) -> bool:
    """Whether a place may lose its result while the key to delete is unknown.

    `known` are the ids of columns that are the same for all rows of a group.
    """
    fixed, with_place, loses = {*known, id_of(place)}, {id_of(place)}, False
    for step in reversed(above):
        node = step.node
        if kind(node) == "Filter":
            loses |= not _used_by(node) <= fixed or _has_subquery(node.condition(), jvm)
        if kind(node) == "Project":
            for column in items(node.projectList()):
                used = _used_by(column)
                is_fixed = used <= fixed and not _has_subquery(column, jvm)
                fixed |= {id_of(column)} if is_fixed else set()
                with_place |= {id_of(column)} if used & with_place else set()
    keys = {id_of(column) for column in items(top.output()) if column.name().lower() == "key"}
    says_place = bool(keys & with_place) or size == 1
    return loses and not (keys and keys <= fixed and says_place)

"""Rewrites the n best rows of groups as an aggregate, on Spark's analyzed plans.

`row_number() OVER (PARTITION BY … ORDER BY …) AS place` with `WHERE place <= n` becomes an
Aggregate by the columns of PARTITION BY. Its function is a CollectTopK of Spark, a queue of n rows.
The array that it gives is exploded, so the operators above see the columns that they saw before.
With `rank()` and `dense_rank()`, rows that tie have one place, and without a condition all rows are
kept, so the function is CollectList; see `ranked_rows`.

Rows are compared as structs: in the natural order of each field, nulls first. So a descending
column of ORDER BY is inverted, and nulls that come last get a column of their own in front.

Over a changelog, a row that goes makes room for one that was left out. So the function is
CollectList, of which `retraction` makes one of all rows, and the array has the first n of them,
filled with nulls. A place that is null has no result. Ranks, and places of all rows, are those of
`ranked_rows` there too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import (
    PlanStep,
    compared,
    conjuncts,
    id_of,
    input_column,
    is_column,
    kind,
    nodes_to_input,
    refusal,
    type_of,
    with_column,
)
from kafka_pipeline.streams.sql.ranked_rows import (
    ALL_ROWS,
    RANKS,
    Ranking,
    array_exploded,
    collected,
    versions,
)
from kafka_pipeline.streams.sql.spec import QueryError

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz")
_DIGITS = "0123456789ABCDEF"
_NUMBERING = ("RowNumber", "Rank", "DenseRank")

_TIES = ("timestamp", "partition", "offset")
"""The columns of records that decide between rows which ORDER BY takes for equal."""


@dataclass(frozen=True, slots=True)
class BestRows:
    """A query whose numbers of rows have become an Aggregate.

    `above` are the operators above the Aggregate, from the result down. `size` is the largest
    number that is kept, and `order` names the types and directions of ORDER BY. `loses_rows` says
    that a result may go while the key to delete is unknown. With `rank()` or `dense_rank()`, or
    without a limit, there is a `ranking`.
    """

    aggregate: Any
    above: list[PlanStep]
    size: int
    order: Sequence[str]
    loses_rows: bool
    ranking: Ranking | None


def best_rows(
    above: list[PlanStep],
    window: Any,
    rdd_id: int,
    sizes: tuple[int, int],
    make: Catalyst,
    *,
    is_changelog: bool,
) -> BestRows:
    """Rewrite a function that numbers rows and the operators above, which are from the result down.

    `sizes` are how many rows of a group are kept at least, and how many a query may ask for.
    Without a condition above that limits them, all rows of a group are kept. Over a changelog, rows
    that tie are ordered by the columns that are kept with them. Raises `QueryError` with the reason
    if it has no groups, or if their rows cannot be kept.
    """
    function = numbering(window)
    place, groups = items(window.windowExpressions())[0].toAttribute(), _groups(window, function)
    least, max_collected = sizes
    size = max(least, _most_rows(above, place, function, max_collected, rdd_id))
    is_ranked = function in RANKS or size == ALL_ROWS
    top, (above, used) = above[0].node, _pruned(above, make)
    child = items(window.children())[0]
    others = used - {id_of(each) for each in groups}
    wanted = [column for column in items(child.output()) if id_of(column) in others]
    derived = _derived(wanted, groups, child, rdd_id, make)
    if is_changelog:
        derived += _repeated(wanted, groups, child, rdd_id, make)
    known = {id_of(column) for column in (*groups, *derived)}
    # By name, so that another order of columns in SELECT does not change what is kept.
    kept = sorted(
        (column for column in wanted if id_of(column) not in known),
        key=lambda column: str(column.name()),
    )
    _require_comparable(kept, make)
    orders = [each for each in items(window.orderSpec()) if not each.child().foldable()]
    sorting = [part for each in orders for part in _sorting_columns(each, make)]
    tied, ties = (child, []) if is_changelog else _with_ties(child, function, rdd_id, make)
    order = [_order_name(each) for each in orders]
    if not is_ranked:
        sorting = [*sorting, *ties]
        if not sorting and not kept:
            sorting = [make.literal(0, "int")]  # a struct needs a field
        first_kept = len(sorting)
        names = [*([None] * first_kept), *(str(column.name()) for column in kept)]
        row = make.struct([*sorting, *kept], names)
        if is_changelog:
            array = _first_rows(row, size, make)
        else:
            array = make.smallest(row, size).toAggregateExpression()
        aggregate = make.aggregate(groups, [*groups, make.alias(array, "__best")], tied)
        places = [(column, first_kept + index) for index, column in enumerate(kept)]
        exploded = _exploded(aggregate, groups, derived, places, place, make)
        if is_changelog:
            exploded = _only_rows(exploded, make)
        loses_rows = _loses_rows(above, top, known, place, size, make, may_lose=is_changelog)
        return BestRows(aggregate, [*above, *exploded], size, order, loses_rows, None)
    ranking = Ranking(function, size, max_collected, window)
    columns = sorting, ties, kept
    aggregate = collected(ranking, tied, groups, columns, make, is_changelog=is_changelog)
    exploded = versions(aggregate, groups, derived, (kept, len(ties)), place, make)
    if is_changelog:
        exploded = _only_rows(exploded, make)
    # The place tells rows apart, unless rows that tie have one.
    naming = kept if function in RANKS else [*kept, place]
    made_of = _made_of_others(groups, naming, child, rdd_id, make)
    made_of |= {id_of(column): _used_by(column, make) for column in derived}
    loses_rows = not _names_rows(above, top, made_of, groups, naming, make)
    return BestRows(aggregate, [*above, *exploded], size, order, loses_rows, ranking)


def numbering(window: Any) -> str:
    """Return the function of a Window operator that numbers rows, such as `row_number`.

    Raises `QueryError` if there is another function, or another one.
    """
    functions = [each.child().windowFunction() for each in items(window.windowExpressions())]
    if any(kind(each) not in _NUMBERING for each in functions):
        raise refusal(window)
    if len(functions) > 1:
        raise QueryError("a query can number rows once: leave out the other row_number() or rank()")
    return str(functions[0].prettyName())


def _groups(window: Any, function: str) -> list[Any]:
    """Return the columns of PARTITION BY, without constants."""
    columns = {id_of(each): each for each in items(window.partitionSpec()) if not each.foldable()}
    if not columns:
        raise QueryError(
            f"{function}() without a column in PARTITION BY would number the rows of a partition "
            "of the topic, not those of the whole topic: add PARTITION BY"
        )
    return list(columns.values())


def _pruned(above: Sequence[PlanStep], make: Catalyst) -> tuple[list[PlanStep], set[int]]:
    """Return the operators without columns that nothing uses, and the ids of what they use."""
    used = {id_of(column) for column in items(above[0].node.output())}
    pruned = list[PlanStep]()
    for step in above:
        node = step.node
        if kind(node) == "Project":
            columns = [each for each in items(node.projectList()) if id_of(each) in used]
            node = make.project(columns, node.child())
            used = set()
        used |= _used_by(node, make)
        pruned.append(PlanStep(node, step.children, step.index))
    return pruned, used


def _used_by(node: Any, make: Catalyst) -> set[int]:
    """Return the ids of the columns that an operator or an expression uses."""
    return {*make.questions.ids(node.references().toSeq())}


def _derived(
    wanted: Sequence[Any], groups: Sequence[Any], child: Any, rdd_id: int, make: Catalyst
) -> list[Any]:
    """Return columns that are made of those of PARTITION BY alone, such as the window's start.

    They are the same for all rows of a group.
    """
    known = {id_of(column) for column in groups}
    found = []
    for column in wanted:
        value = _made_of(known, column, child, rdd_id, make)
        if value is not None:
            found.append(make.alias(value, column.name(), column.exprId()))
    return found


def _repeated(
    wanted: Sequence[Any], groups: Sequence[Any], child: Any, rdd_id: int, make: Catalyst
) -> list[Any]:
    """Return columns that are made of the same expressions as those of PARTITION BY.

    Only over a changelog: elsewhere, states of earlier versions keep them with the rows.
    """
    ids, of_groups = {id_of(column) for column in wanted}, {id_of(column) for column in groups}
    found = []
    for node in nodes_to_input(child, rdd_id):
        listed = items(node.projectList()) if kind(node) == "Project" else []
        listed = [each for each in listed if kind(each) == "Alias"]
        parts = [each for each in listed if id_of(each) in of_groups]
        for each in listed:
            same = [part for part in parts if part.child().semanticEquals(each.child())]
            if same and id_of(each) in ids:
                part = same[0].toAttribute()
                found.append(make.alias(part, each.name(), each.exprId()))
    return found


def _made_of(known: set[int], column: Any, child: Any, rdd_id: int, make: Catalyst) -> Any | None:
    """Return the expression of known columns that makes a column; `None` if there is none."""
    wanted = id_of(column)
    for node in nodes_to_input(child, rdd_id):
        if kind(node) != "Project":
            continue
        for given in items(node.projectList()):
            if kind(given) != "Alias" or id_of(given) != wanted:
                continue
            value = given.child()
            if _used_by(value, make) <= known and not _needs_operators(value, make):
                return value
            if kind(value) != "AttributeReference":
                return None
            wanted = id_of(value)
    return None


def _needs_operators(expression: Any, make: Catalyst) -> bool:
    """Whether Spark runs a part of an expression in an operator of its own."""
    python = make.catalyst.trees.TreePattern.PYTHON_UDF()
    return _has_subquery(expression, make) or bool(expression.containsPattern(python))


def _has_subquery(expression: Any, make: Catalyst) -> bool:
    return bool(expression.containsPattern(make.catalyst.trees.TreePattern.PLAN_EXPRESSION()))


def _require_comparable(columns: Sequence[Any], make: Catalyst) -> None:
    ordering = make.expressions.RowOrdering
    for column in columns:
        # As a list of expressions, since py4j takes the type of a struct for a list.
        if not ordering.isOrderable(make.seq([column])):
            name = column.name()
            raise QueryError(
                f"{name} is of the type {type_of(column)}, which cannot be kept "
                "with the best rows, as its values cannot be compared: make text or an array of "
                f"it below the numbering, such as to_json({name}) or map_entries({name})"
            )


def _with_ties(child: Any, function: str, rdd_id: int, make: Catalyst) -> tuple[Any, list[Any]]:
    """Return a plan that gives the columns of records that decide between rows that tie."""
    try:
        for name in _TIES:
            child = with_column(child, name, rdd_id, make)
    except QueryError as error:
        raise QueryError(
            f"an operator below {function}() hides which record a row stems from, which decides "
            "between rows that tie: put that part into a sql processor before this one"
        ) from error
    return child, [input_column(child, name, rdd_id) for name in _TIES]


def _first_rows(row: Any, size: int, make: Catalyst) -> Any:
    """Return an array of the best of all rows of a group, filled with nulls up to the `size`."""
    expressions = make.expressions
    rows = make.aggregates.CollectList(row).toAggregateExpression()
    ordered = expressions.SortArray(rows, make.literal(True, "boolean"))
    nothing = expressions.Literal.create(None, row.dataType())
    count = make.literal(size, "int")
    filled = expressions.Concat(make.seq([ordered, expressions.ArrayRepeat(nothing, count)]))
    return expressions.Slice(filled, make.literal(1, "int"), count)


def _only_rows(exploded: Sequence[PlanStep], make: Catalyst) -> list[PlanStep]:
    """Return the operators of `_exploded`, which leave out places without a row."""
    project, generate = exploded
    _, row = items(generate.node.generatorOutput())
    condition = make.filter(make.expressions.IsNotNull(row), generate.node)
    over = make.project(items(project.node.projectList()), condition)
    return [PlanStep(over, [condition], 0), PlanStep(condition, [generate.node], 0), generate]


def _exploded(
    aggregate: Any,
    groups: Sequence[Any],
    derived: Sequence[Any],
    kept: Sequence[tuple[Any, int]],
    place: Any,
    make: Catalyst,
) -> list[PlanStep]:
    """Return the operators that turn the array of an Aggregate into rows, from the result down.

    `kept` are columns, with the place of their field in a row.
    """
    generate = array_exploded(aggregate, make)
    index, row = items(generate.generatorOutput())
    number = make.expressions.Add(index, make.literal(1, "int"))
    columns = [
        *groups,
        *derived,
        make.alias(number, place.name(), place.exprId()),
        *(make.alias(make.field(row, at), column.name(), column.exprId()) for column, at in kept),
    ]
    project = make.project(columns, generate)
    return [PlanStep(project, [generate], 0), PlanStep(generate, [aggregate], 0)]


def _loses_rows(
    above: Sequence[PlanStep],
    top: Any,
    known: set[int],
    place: Any,
    size: int,
    make: Catalyst,
    *,
    may_lose: bool,
) -> bool:
    """Whether a place may lose its result while the key to delete is unknown.

    `known` are the ids of columns that are the same for all rows of a group. Conditions above may
    be why a place loses its result, or `may_lose` says that it can anyway.
    """
    fixed, with_place, loses = {*known, id_of(place)}, {id_of(place)}, may_lose
    for step in reversed(above):
        node = step.node
        if kind(node) == "Filter":
            loses |= not _used_by(node, make) <= fixed or _has_subquery(node.condition(), make)
        if kind(node) == "Project":
            for column in items(node.projectList()):
                used = _used_by(column, make)
                is_fixed = used <= fixed and not _has_subquery(column, make)
                fixed |= {id_of(column)} if is_fixed else set()
                with_place |= {id_of(column)} if used & with_place else set()
    keys = {id_of(column) for column in items(top.output()) if _is_key(column)}
    says_place = bool(keys & with_place) or size == 1
    return loses and not (keys and keys <= fixed and says_place)


def _names_rows(
    above: Sequence[PlanStep],
    top: Any,
    made_of: dict[int, set[int]],
    groups: Sequence[Any],
    naming: Sequence[Any],
    make: Catalyst,
) -> bool:
    """Whether the key is made of all columns of PARTITION BY, and of one that can name the rows.

    `made_of` has the ids of the columns that those below the operators are made of.
    """
    for step in reversed(above):
        if kind(step.node) != "Project":
            continue
        for column in items(step.node.projectList()):
            if not _has_subquery(column, make):
                found = [made_of.get(each, set()) for each in _used_by(column, make)]
                made_of[id_of(column)] = set().union(*found)
    keys = [made_of.get(id_of(each), set()) for each in items(top.output()) if _is_key(each)]
    named = set().union(*keys)
    return {id_of(each) for each in groups} <= named and bool(named & {*map(id_of, naming)})


def _made_of_others(
    groups: Sequence[Any], naming: Sequence[Any], child: Any, rdd_id: int, make: Catalyst
) -> dict[int, set[int]]:
    """Return for each column its own id, and those of the columns that it is made of.

    One that is the same expression as a column of PARTITION BY is made of that.
    """
    found = {id_of(column): {id_of(column)} for column in (*groups, *naming)}
    of_groups, parts = {id_of(column) for column in groups}, list[Any]()
    for node in nodes_to_input(child, rdd_id):
        if kind(node) != "Project":
            continue
        listed = items(node.projectList())
        parts += [each for each in listed if id_of(each) in of_groups and kind(each) == "Alias"]
        for given in listed:
            reached = [ids for ids in found.values() if id_of(given) in ids]
            if not reached:
                continue
            made_of = _used_by(given, make)
            if kind(given) == "Alias":
                value = given.child()
                made_of |= {id_of(each) for each in parts if each.child().semanticEquals(value)}
            for ids in reached:
                ids |= made_of
    return found


def _is_key(column: Any) -> bool:
    return str(column.name()).lower() == "key"


# How many rows a group keeps


def _most_rows(
    above: Sequence[PlanStep], place: Any, function: str, max_collected: int, rdd_id: int
) -> int:
    """Return the largest number of a row that the operators above keep; `place` is the number.

    That is `ALL_ROWS` without a limit. Raises `QueryError` if one is below 1 or above
    `max_collected`.
    """
    name = place.name()
    limits = [
        limit
        for step in above
        if kind(step.node) == "Filter"
        for condition in conjuncts(step.node.condition())
        for value, limit in _limits(condition)
        if is_column(_without_casts(value), id_of(place), step.child, rdd_id)
    ]
    if not limits:
        return ALL_ROWS
    size = min(limits)
    if size < 1:
        raise QueryError(f"{function}() begins with 1, so no row has {name} <= {size}")
    if size > max_collected:
        raise QueryError(
            f"{name} <= {size} keeps more rows of a group than max_collected allows, which is "
            f"{max_collected}"
        )
    return size


def _without_casts(value: Any) -> Any:
    while kind(value) == "Cast":
        value = value.child()
    return value


def _limits(condition: Any) -> Iterator[tuple[Any, int]]:
    """Yield expressions that a condition limits, with the largest integer that each may be."""
    name = kind(condition)
    if name == "In":
        values = [_integer(each) for each in items(condition.list())]
        found = [value for value in values if value is not None]
        if len(found) == len(values):
            yield condition.value(), max(found)
        return
    parts = [*compared(condition)]
    if name == "EqualNullSafe":
        parts.append((condition.left(), "=", condition.right()))
    for left, operator, right in parts:
        for value, bounds, constant in ((left, "<=", right), (right, ">=", left)):
            limit = _integer(constant)
            if limit is not None and operator in (bounds, bounds[0], "="):
                yield value, limit - (operator == bounds[0])


def _integer(value: Any) -> int | None:
    """Return the value of a constant expression; `None` if it is not an integer."""
    if not value.foldable():
        return None
    found = value.eval(None)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


# ORDER BY


def _order_name(order: Any) -> str:
    """Return the type and the direction of a column of ORDER BY."""
    return " ".join([type_of(order.child()), *_directions(order)])


def _sorting_columns(order: Any, make: Catalyst) -> list[Any]:
    """Return the columns whose natural order is that of a column of ORDER BY.

    Raises `QueryError` if there are none.
    """
    value = order.child()
    direction, nulls = _directions(order)
    columns = list[Any]()
    if value.nullable():
        if nulls == "NULLS LAST":
            columns.append(make.expressions.IsNull(value))
        elif direction == "DESC":
            columns.append(make.expressions.IsNotNull(value))
    return [*columns, *([value] if direction == "ASC" else _inverted(value, make))]


def _inverted(value: Any, make: Catalyst) -> list[Any]:
    """Return columns that are the smaller, the larger a value is."""
    expressions, type_ = make.expressions, type_of(value)
    if type_ in _WHOLE:
        # Minus the smallest number would be too large for its type.
        return [expressions.BitwiseNot(value)]
    if type_ == "boolean":
        return [expressions.Not(value)]
    if type_ == "date":
        return [expressions.BitwiseNot(expressions.UnixDate(value))]
    if type_ in _TIMES:
        time = expressions.PreciseTimestampConversion(value, value.dataType(), make.type("bigint"))
        return [expressions.BitwiseNot(time)]
    if type_ in ("float", "double"):
        # NaN is larger than all others, and so is its negative.
        return [expressions.Not(expressions.IsNaN(value)), expressions.UnaryMinus(value)]
    if type_.startswith("decimal"):
        return [expressions.UnaryMinus(value)]
    if type_ in ("string", "binary"):
        # As digits of bytes that count down; the letter at the end puts longer ones first.
        digits = [make.literal(text, "string") for text in (_DIGITS, _DIGITS[::-1])]
        turned = expressions.StringTranslate(expressions.Hex(value), *digits)
        return [expressions.Concat(make.seq([turned, make.literal("G", "string")]))]
    raise QueryError(
        f"ORDER BY {value.sql()} DESC: rows are kept in ascending order, and values of the type "
        f"{type_} cannot be inverted: order by numbers, timestamps, dates, booleans or strings"
    )


def _directions(order: Any) -> tuple[str, str]:
    return str(order.direction().sql()), str(order.nullOrdering().sql())

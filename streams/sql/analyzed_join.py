"""Recognises the queries that join two inputs, on Spark's analyzed plans, and cuts them there.

Below the join, each record becomes rows; above it, each pair of rows becomes results. Spark does
not pair the rows, as they arrive at different times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal

from kafka_pipeline.common.pipelines.specs import JoinedBy, JoinSide, JoinSpec, RegularJoinSpec
from kafka_pipeline.streams.sql.catalyst import Catalyst
from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.join_bounds import (
    EXAMPLE,
    HOW_TO_JOIN,
    SEVERAL_JOINS,
    TimeComparison,
    Times,
    bounds_of,
)
from kafka_pipeline.streams.sql.join_shape import EQUAL, MATCHES, RECORD
from kafka_pipeline.streams.sql.plan import (
    PlanStep,
    all_nodes,
    compared,
    conjuncts,
    demands,
    expressions,
    id_of,
    input_column,
    is_column,
    is_input,
    kind,
    names_read,
    reads_input,
    refusal,
    require_narrow,
    type_of,
    with_column,
)
from kafka_pipeline.streams.sql.spec import QueryError

_KEEPS: dict[str, tuple[JoinSide, ...]] = {
    "Inner": (),
    "Cross": (),
    "LeftOuter": ("left",),
    "RightOuter": ("right",),
    "FullOuter": ("left", "right"),
    "LeftSemi": (),
    "LeftAnti": ("left",),
}
_ONLY: dict[str, Literal["semi", "anti"]] = {"LeftSemi": "semi", "LeftAnti": "anti"}
_INNER = ("Inner", "Cross")
_WHERE_BELOW = ((*_INNER, "LeftOuter", "LeftSemi", "LeftAnti"), (*_INNER, "RightOuter"))
"""The joins below whose left and right side a part of WHERE may be, if it reads that side alone."""
_ON_BELOW = (
    (*_INNER, "RightOuter", "LeftSemi"),
    (*_INNER, "LeftOuter", "LeftSemi", "LeftAnti"),
)
"""The same for ON: its parts do not decide whether a row of a side that is kept has a result."""
_COMPARED_AS_BYTES = re.compile(
    r"(string|binary|boolean|tinyint|smallint|int|bigint|date|timestamp|timestamp_ntz|decimal\(.*\))"
)
"""The types of join columns. Equal values of others may have different bytes, as 0.0 and -0.0."""

_SUBQUERIES = ("Exists", "InSubquery", "ListQuery", "ScalarSubquery")

_COLUMN_ID = re.compile(r"#\d+L?")
_SUMS = ("TimestampAddInterval", "TimeAdd", "Add")
"""A time and an interval, in Spark 4.1 and before, and two intervals."""
_DIFFERENCES = ("SubtractTimestamps", "Subtract")
"""Two times, and two intervals."""


@dataclass(frozen=True, slots=True)
class JoinedQuery:
    """An analyzed query that joins two inputs.

    `above` are the operators from the result down to the `join`. `rdd_ids` are the ids of the left
    and the right input, and `spec` describes how they meet. `others` are the conditions besides the
    keys and the bounds, and `kept` the columns of each side that `others` and `above` use. `equal`
    has the pairs of expressions by which rows of a regular join meet, the keys aside.
    """

    above: list[PlanStep]
    join: Any
    rdd_ids: tuple[int, int]
    kept: tuple[list[Any], list[Any]]
    spec: JoinSpec
    others: list[Any]
    equal: list[tuple[Any, Any]] = field(default_factory=list)

    @property
    def names_of_equal(self) -> list[str]:
        """The names that the expressions of `equal` have in the rows of a side."""
        return [f"{EQUAL}{index}" for index in range(len(self.equal))]

    @property
    def described_equal(self) -> list[str]:
        """What says by which columns rows meet."""
        columns = [_described(both) for both in self.equal]
        regular = self.spec.regular
        return ["key", *columns] if regular is not None and regular.also_by_columns else columns

    @property
    def is_checked(self) -> bool:
        """Whether pairs must be checked before what is done with their rows is known."""
        regular = self.spec.regular
        decides = bool(self.spec.keeps) or (regular is not None and regular.only is not None)
        return bool(self.others) and decides

    def rows(self, side: int, make: Catalyst) -> Any:
        """Return the plan of a side: its kept columns and `equal`, renamed, and `RECORD`."""
        rdd_id = self.rdd_ids[side]
        plan = with_column(items(self.join.children())[side], RECORD, rdd_id, make)
        named = [
            make.alias(column, name_of(side, index)) for index, column in enumerate(self.kept[side])
        ]
        named += [
            make.alias(both[side], name)
            for both, name in zip(self.equal, self.names_of_equal, strict=True)
        ]
        number = input_column(plan, RECORD, rdd_id)
        return make.project([*named, number], plan)

    def matches(self, pairs: Any, make: Catalyst) -> Any:
        """Return the plan that computes `MATCHES` of pairs: whether `others` hold."""
        condition = make.literal(True, "boolean")
        for demand in self.others:
            condition = make.expressions.And(condition, demand)
        return make.project([make.alias(condition, MATCHES)], self._joined(pairs, make))

    def results(self, pairs: Any, make: Catalyst) -> Any:
        """Return the plan above the join, over pairs.

        It leaves out pairs for which `others` do not hold, unless the query `is_checked`: then the
        caller must have left them out, as their rows may have no partner.
        """
        plan = self._joined(pairs, make)
        for demand in () if self.is_checked else self.others:
            plan = make.filter(demand, plan)
        for step in reversed(self.above):
            plan = step.over(plan, make)
        return plan

    def _joined(self, pairs: Any, make: Catalyst) -> Any:
        """Return the columns of pairs as those of the join, with their names and ids."""
        given = {str(column.name()): column for column in items(pairs.output())}
        columns = [
            make.alias(given[name_of(side, index)], column.name(), column.exprId())
            for side in (0, 1)
            for index, column in enumerate(self.kept[side])
        ]
        return make.project(columns, pairs)


def name_of(side: int, index: int) -> str:
    """Return the name of a column of a side's rows."""
    return f"{('left', 'right')[side]}{index}"


def joined_query(
    analyzed: Any,
    inputs: Mapping[int, str],
    view_id: int,
    joined_by: JoinedBy | None,
    make: Catalyst,
) -> JoinedQuery:
    """Cut an analyzed query at its join of two `inputs`, whose RDDs have these ids and names.

    `view_id` is the id of the view of all inputs. With `joined_by`, it is a regular join, in which
    bounds of time are conditions like others. Raises `QueryError` with the reason if records of two
    inputs cannot be joined that way.
    """
    if view_id not in inputs and any(is_input(node, view_id) for node in all_nodes(analyzed)):
        raise QueryError("a query that joins two inputs cannot also read input: name the two")
    for subquery in items(analyzed.subqueriesAll()):
        for name in names_read(subquery, inputs):
            raise QueryError(f"a subquery reads {name}: join the two inputs in FROM")
    above, join = _way_to_join(analyzed, inputs)
    how = str(join.joinType().toString())
    keeps, only = _KEEPS.get(how), _ONLY.get(how)
    demanded, where = _demands_and_where(join, above, how)
    if keeps is None or not demanded:
        raise QueryError(f"{HOW_TO_JOIN} ({how})")
    join, demanded, above = _with_conditions_below(join, demanded, where, above, make)
    rdd_ids = _inputs_of_sides(join, inputs)
    for side, rdd_id in zip(items(join.children()), rdd_ids, strict=True):
        require_narrow(side, rdd_id)
    equal, bounds, regular = list[tuple[Any, Any]](), None, None
    left, right = (inputs[rdd_id].lower() for rdd_id in rdd_ids)
    if joined_by == "columns":
        equal, others = _read_equal(join, demanded)
        regular = RegularJoinSpec(only=only, stage="pairs")
    elif joined_by is not None:
        _, others = _read_condition(join, demanded, rdd_ids, has_bounds=False)
        also_by_columns = joined_by == "key and columns"
        if also_by_columns:
            equal, others, _ = _split_equal(join, others)
        regular = RegularJoinSpec(only=only, also_by_columns=also_by_columns)
    else:
        comparisons, others = _read_condition(join, demanded, rdd_ids, has_bounds=True)
        bounds = bounds_of(comparisons)
        if bounds is None or only is not None:
            raise QueryError(f"for Spark, the join has no bounds: write them as in {EXAMPLE}")
    before_ms, after_ms = bounds or (0, 0)
    spec = JoinSpec(
        left=left,
        right=right,
        keeps=keeps,
        before_ms=before_ms,
        after_ms=after_ms,
        regular=regular,
    )
    above, used = _without_unused(above, analyzed, make)
    for demand in others:
        used |= _read_by(demand)
    first, second = (
        [column for column in items(side.output()) if id_of(column) in used]
        for side in items(join.children())
    )
    return JoinedQuery(above, join, rdd_ids, (first, second), spec, others, equal)


def _way_to_join(plan: Any, inputs: Mapping[int, str]) -> tuple[list[PlanStep], Any]:
    above: list[PlanStep] = []
    while True:
        children = items(plan.children())
        reading = [index for index, child in enumerate(children) if names_read(child, inputs)]
        if not reading:
            raise QueryError("the query does not join two inputs")
        if len(reading) > 1:
            if kind(plan) != "Join":
                raise refusal(plan)
            return above, plan
        if kind(plan) in ("Aggregate", "Distinct"):
            raise QueryError(
                "GROUP BY and DISTINCT cannot be in the SELECT that joins two inputs: put the join "
                "into a subquery of FROM"
            )
        if kind(plan) == "LateralJoin":
            raise refusal(plan)
        above.append(PlanStep(plan, children, reading[0]))
        plan = children[reading[0]]


def _without_unused(
    above: Sequence[PlanStep], analyzed: Any, make: Catalyst
) -> tuple[list[PlanStep], set[int]]:
    """Return the operators above a join, and the ids of all columns that these and the result read.

    A SELECT in between loses the columns that nothing reads. With USING, Spark has one of all
    columns of both sides there.
    """
    used, found = {id_of(column) for column in items(analyzed.output())}, list[PlanStep]()
    for step in above:
        node = step.node
        if kind(node) == "Project":
            columns = [each for each in items(node.projectList()) if id_of(each) in used]
            node = make.project(columns, node.child())
        used |= _read_by(node)
        found.append(replace(step, node=node))
    return found, used


def _read_by(node: Any) -> set[int]:
    return {id_of(column) for column in items(node.references().toSeq())}


def _inputs_of_sides(join: Any, inputs: Mapping[int, str]) -> tuple[int, int]:
    sides = [
        [rdd_id for rdd_id in inputs if reads_input(child, rdd_id)]
        for child in items(join.children())
    ]
    if len(sides[0]) > 1 or len(sides[1]) > 1:
        raise QueryError(SEVERAL_JOINS)
    (left,), (right,) = sides
    return left, right


def _demands_and_where(
    join: Any, above: Sequence[PlanStep], how: str
) -> tuple[list[Any], list[Any]]:
    """Return what a join demands of pairs, and what WHERE above it demands.

    WHERE is the condition of an inner join that has none, such as one by a comma, but for what
    reads columns of a LATERAL VIEW or a subquery.
    """
    demanded = [each for each in demands(join) if str(each.toString()) != "true"]
    at = _place_of_where(above)
    where = [] if at is None else [*conjuncts(above[at].node.condition())]
    if demanded or how not in _INNER:
        return demanded, where
    given = {id_of(column) for column in items(join.output())}
    of_pairs = [_read_by(each) <= given and not _has_subquery(each) for each in where]
    return (
        [each for each, is_of_pairs in zip(where, of_pairs, strict=True) if is_of_pairs],
        [each for each, is_of_pairs in zip(where, of_pairs, strict=True) if not is_of_pairs],
    )


def _with_conditions_below(
    join: Any, demanded: list[Any], where: list[Any], above: list[PlanStep], make: Catalyst
) -> tuple[Any, list[Any], list[PlanStep]]:
    """Put conditions on one side alone below a join; return it, the others, and what is above.

    Otherwise, rows that cannot have a result would be kept, and sent to where they meet others.
    Spark's optimizer does the same (PushPredicateThroughJoin), but only where it plans a join.
    """
    how, side_of = str(join.joinType().toString()), _sides_of(join)

    def side_below(demand: Any, joins: Sequence[Sequence[str]]) -> int | None:
        side = side_of(demand)
        if side is None or how not in joins[side] or _has_subquery(demand):
            return None
        return side if demand.deterministic() else None

    below: tuple[list[Any], list[Any]] = ([], [])
    of_pairs, of_results = list[Any](), list[Any]()
    for given, joins, others in (
        (demanded, _ON_BELOW, of_pairs),
        (where, _WHERE_BELOW, of_results),
    ):
        for demand in given:
            side = side_below(demand, joins)
            (others if side is None else below[side]).append(demand)
    sides = [
        _filtered(of_side, plan, make)
        for of_side, plan in zip(below, items(join.children()), strict=True)
    ]
    join = make.with_children(join, sides)
    at = _place_of_where(above)
    if at is None:
        return join, of_pairs, above
    (child,), rest = above[at].children, []
    if of_results:
        rest = [PlanStep(_filtered(of_results, child, make), [child], 0)]
    return join, of_pairs, [*above[:at], *rest, *above[at + 1 :]]


def _sides_of(join: Any) -> Callable[[Any], int | None]:
    """Return what says which side an expression reads; it says `None` unless it is one alone."""
    outputs = [{id_of(each) for each in items(side.output())} for side in items(join.children())]

    def side_of(expression: Any) -> int | None:
        read = _read_by(expression)
        return next((side for side in (0, 1) if read and read <= outputs[side]), None)

    return side_of


def _place_of_where(above: Sequence[PlanStep]) -> int | None:
    """Return which operator is a WHERE directly above a join and the LATERAL VIEWs that follow."""
    for at in reversed(range(len(above))):
        if kind(above[at].node) != "Generate":
            return at if kind(above[at].node) == "Filter" else None
    return None


def _filtered(demanded: Sequence[Any], plan: Any, make: Catalyst) -> Any:
    """Return a plan with a WHERE above it, unless nothing is demanded.

    `conjuncts` gives the last part first, and in `x <> 0 AND 1 / x > y` the first guards the last.
    """
    if not demanded:
        return plan
    return make.filter(reduce(make.expressions.And, reversed(demanded)), plan)


def _has_subquery(demand: Any) -> bool:
    return any(kind(each) in _SUBQUERIES for each in expressions([demand]))


def _read_equal(join: Any, demanded: Sequence[Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Return what must be equal on both sides of a join, in a certain order, and the other demands.

    Raises `QueryError` if there is nothing by which rows can meet.
    """
    equal, others, wrong = _split_equal(join, demanded)
    if not equal:
        types_found = f" (these are of the type {', '.join(dict.fromkeys(wrong))})" if wrong else ""
        raise QueryError(
            "two inputs are joined by columns that must be equal, as in FROM orders o JOIN "
            "payments p ON o.id = p.order_id; text, whole numbers, DECIMAL, BOOLEAN, BINARY, DATE "
            f"and TIMESTAMP can be compared that way{types_found}. Cast others, and compare "
            "windows by their start"
        )
    return equal, others


def _split_equal(
    join: Any, demanded: Sequence[Any]
) -> tuple[list[tuple[Any, Any]], list[Any], list[str]]:
    """Return by what rows can meet, in a certain order, and the other demands.

    Then come the types of what must be equal, but cannot be compared as bytes.
    """
    side_of = _sides_of(join)
    equal, others, wrong = list[tuple[Any, Any]](), list[Any](), list[str]()
    for demand in demanded:
        if kind(demand) != "EqualTo":
            others.append(demand)
            continue
        first, second = demand.left(), demand.right()
        sides = side_of(first), side_of(second)
        if set(sides) != {0, 1}:
            others.append(demand)
            continue
        types = [type_of(each) for each in (first, second)]
        if types[0] == types[1] and _COMPARED_AS_BYTES.fullmatch(types[0]):
            equal.append((first, second) if sides == (0, 1) else (second, first))
        else:
            wrong += types
            others.append(demand)
    return sorted(equal, key=_described), others, wrong


def _described(both: tuple[Any, Any]) -> str:
    """Return text that is the same for the same pair of expressions in another query."""
    left, right = (_COLUMN_ID.sub("", str(each.toString())) for each in both)
    return f"{left} = {right} {type_of(both[0])}"


def _read_condition(
    join: Any, demanded: Sequence[Any], rdd_ids: tuple[int, int], *, has_bounds: bool
) -> tuple[list[TimeComparison], list[Any]]:
    """Return the comparisons of times in a condition, and all others but the equality of keys.

    Unless it `has_bounds`, comparisons of times are among the others. Raises `QueryError` unless
    the keys of both records must be equal.
    """
    sides = [*zip(items(join.children()), rdd_ids, strict=True)]
    keys, times = (
        [id_of(input_column(side, name, rdd_id)) for side, rdd_id in sides]
        for name in ("key", "timestamp")
    )

    def side_of(column: Any, wanted: list[int]) -> int | None:
        for number, (side, rdd_id) in enumerate(sides):
            # Ids of columns differ between the sides.
            gives = id_of(column) in map(id_of, items(side.output()))
            if gives and is_column(column, wanted[number], side, rdd_id):
                return number
        return None

    def key_of(column: Any) -> int | None:
        return side_of(column, keys) if kind(column) == "AttributeReference" else None

    def time_of(column: Any) -> Times | None:
        match side_of(column, times):
            case 0:
                return Times(left=1)
            case 1:
                return Times(right=1)
        return None

    comparisons, others, has_keys = list[TimeComparison](), list[Any](), False
    for demand in demanded:
        if kind(demand) == "EqualTo":
            both = {key_of(demand.left()), key_of(demand.right())}
            if both == {0, 1}:
                has_keys = True
                continue
        found = [
            TimeComparison.of(before, operator, after)
            for first, operator, second in compared(demand)
            if has_bounds
            and (before := _times(first, time_of)) is not None
            and (after := _times(second, time_of)) is not None
        ]
        known = [each for each in found if each is not None]
        comparisons += known
        if not known or len(known) < len([*compared(demand)]):
            others.append(demand)
    if not has_keys:
        raise QueryError(
            "for Spark, the keys of both inputs need not be equal: write ON and the keys as in "
            f"{EXAMPLE}"
        )
    return comparisons, others


def _times(expression: Any, time_of: Callable[[Any], Times | None]) -> Times | None:
    """Return what an expression of times and intervals adds up to; `None` if it is another one.

    `time_of` says what a column is.
    """
    if "DayTimeInterval" in expression.dataType().toString() and expression.foldable():
        us = expression.eval(None)
        return None if us is None else Times(us=int(us))
    parts = items(expression.children())
    match kind(expression):
        case "AttributeReference":
            return time_of(expression)
        case "DatetimeSub":
            return _times(expression.replacement(), time_of)
        case "Cast" if type_of(expression) in ("timestamp", "interval day to second"):
            return _times(parts[0], time_of)
        case "UnaryMinus":
            found = _times(parts[0], time_of)
            return None if found is None else -found
        case name if name in (*_SUMS, *_DIFFERENCES):
            first, second = (_times(each, time_of) for each in parts)
            if first is None or second is None:
                return None
            return first - second if name in _DIFFERENCES else first + second
    return None

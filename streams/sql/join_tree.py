"""The join of two inputs of a query, found in the syntax tree that sqlglot makes of its text.

It is imported late, and only for queries that may join: see `query_tree.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.common.pipelines.specs import JoinSide, JoinSpec, RegularJoinSpec
from kafka_pipeline.streams.sql.join_bounds import (
    HOW_TO_JOIN,
    SEVERAL_JOINS,
    Comparing,
    TimeComparison,
    Times,
    bounds_of,
)
from kafka_pipeline.streams.sql.query_tree import (
    is_column_of_records,
    is_input,
    microseconds,
    microseconds_between,
    parsed,
    quiet,
    sources_of,
)
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError

_OPERATORS: dict[type[exp.Expr], Comparing] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.EQ: "=",
    exp.GTE: ">=",
    exp.GT: ">",
}
_KEEPS: dict[tuple[str, str], tuple[JoinSide, ...]] = {
    ("", ""): (),
    ("", "INNER"): (),
    ("LEFT", ""): ("left",),
    ("LEFT", "OUTER"): ("left",),
    ("RIGHT", ""): ("right",),
    ("RIGHT", "OUTER"): ("right",),
    ("FULL", ""): ("left", "right"),
    ("FULL", "OUTER"): ("left", "right"),
    ("", "SEMI"): (),
    ("LEFT", "SEMI"): (),
    ("", "ANTI"): ("left",),
    ("LEFT", "ANTI"): ("left",),
}
"""The sides that have results without a partner, by side and kind of a join."""

_BARE = ("", "INNER", "CROSS")
"""The kinds of joins that may have their condition in WHERE. A comma is `CROSS` for sqlglot."""

_HOW_WINDOWS_MEET = (
    "Spark takes no window(…) in ON. Name the windows in front of the join, and compare their "
    "start, as in FROM (SELECT *, window(timestamp, '1 hour') AS w FROM a) a JOIN (SELECT *, "
    "window(timestamp, '1 hour') AS w FROM b) b ON a.w.start = b.w.start"
)

_ONLY: dict[str, Literal["semi", "anti"]] = {"SEMI": "semi", "ANTI": "anti"}


def find_join(
    query: str, tables: Collection[str], *, may_have_bounds: bool = True
) -> JoinSpec | None:
    """Return the join of two inputs; `None` if there is none, or sqlglot cannot read the query.

    The names of the inputs are in small letters. A join is regular unless `ON` has the keys of both
    records and both bounds of the time between them. Unless it `may_have_bounds`, it is regular,
    and they are conditions like others. A join without ON, such as one by a comma, has its
    condition in WHERE.

    Raises `QueryError` for joins that cannot run.
    """
    try:
        with quiet():
            found = [
                join for scope in traverse_scope(parsed(query, tables)) for join in joins_of(scope)
            ]
    except (SqlglotError, RecursionError):
        return None
    if len(found) > 1:
        raise QueryError(SEVERAL_JOINS)
    if not found:
        return None
    scope, join, left, right = found[0]
    # A name may be that of a table.
    said = f"the query joins {left} with {right}, which are inputs, as tables has neither"
    how = f"{join.method or ''} {join.side or ''} {join.kind or ''} JOIN".strip()
    on, using = join.args.get("on"), join.args.get("using")
    kind, where = join.kind or "", scope.expression.args.get("where")
    if is_bare(join) and where is not None:
        on, kind = where.this, ""
    if on is not None and any(_is_window(call) for call in on.find_all(exp.Anonymous)):
        raise QueryError(f"{said}: {_HOW_WINDOWS_MEET}")
    keeps = _KEEPS.get((join.side or "", kind))
    if join.method or keeps is None or (on is None and not using):
        raise QueryError(f"{said}: {HOW_TO_JOIN}" + (f" ({how})" if how != "JOIN" else ""))
    only = _ONLY.get(join.kind)
    try:
        bounds = None
        if may_have_bounds and on is not None and only is None and left != right:
            bounds = bounds_of(_comparisons(on, scope, join.alias_or_name))
    except QueryError as error:
        raise QueryError(f"{said}: {error}") from error
    if on is not None:
        is_key = [_is_of_keys(each, scope, join.alias_or_name) for each in equalities(on)]
    else:
        is_key = _which_are_keys([each.name for each in using or ()], scope, join.alias_or_name)
    if bounds is None or not any(is_key):
        regular = RegularJoinSpec(
            only=only,
            stage="whole" if any(is_key) else "pairs",
            also_by_columns=any(is_key) and not all(is_key),
        )
        return JoinSpec(
            left=left, right=right, keeps=keeps, before_ms=0, after_ms=0, regular=regular
        )
    return JoinSpec(left=left, right=right, keeps=keeps, before_ms=bounds[0], after_ms=bounds[1])


def is_bare(join: exp.Join) -> bool:
    """Whether a join has no condition of its own, such as one by a comma."""
    has_condition = join.args.get("on") not in (None, exp.true()) or bool(join.args.get("using"))
    return not has_condition and not join.side and (join.kind or "") in _BARE


def _is_window(call: exp.Anonymous) -> bool:
    return call.name.lower() in ("window", "session_window", CALENDAR_WINDOW)


def joins_of(scope: Scope) -> Iterator[tuple[Scope, exp.Join, str, str]]:
    """Yield the joins of inputs in a scope, with the names of the inputs on both sides."""
    joins = {join.alias_or_name: join for join in scope.expression.args.get("joins") or ()}
    left: set[str] = set()
    for alias, (_, source) in sources_of(scope).items():
        read = inputs_of(source)
        if left and read and alias in joins:
            for first in sorted(left):
                yield scope, joins[alias], first, min(read)
        left |= read


def joins_inputs(scope: Scope) -> bool:
    """Whether a part of a query joins inputs."""
    return next(joins_of(scope), None) is not None


def inputs_of(source: exp.Table | Scope) -> set[str]:
    """Return the names of the inputs that a source reads."""
    if isinstance(source, exp.Table):
        return {source.name} if is_input(source) else set()
    read = [each for _, each in source.selected_sources.values()]
    return set[str]().union(*map(inputs_of, [*read, *source.set_operation_scopes]))


def equalities(condition: exp.Expr) -> Iterator[exp.EQ]:
    """Yield the equalities that a condition demands."""
    condition = condition.unnest()
    match condition:
        case exp.And():
            yield from equalities(condition.left)
            yield from equalities(condition.right)
        case exp.EQ():
            yield condition


def _is_of_keys(equality: exp.EQ, scope: Scope, right: str) -> bool:
    """Whether the keys of both records must be equal."""
    sides = {
        each.table == right
        for each in (equality.left.unnest(), equality.right.unnest())
        if isinstance(each, exp.Column) and each.table and is_column_of_records(each, "key", scope)
    }
    return sides == {False, True}


def _which_are_keys(using: Sequence[str], scope: Scope, right: str) -> list[bool]:
    """Return which of the names of `USING` are those of the keys of both records."""
    names = [*sources_of(scope)]
    left = names[: names.index(right)]

    def is_key(source: str, name: str) -> bool:
        return is_column_of_records(exp.column(name, table=source), "key", scope)

    return [is_key(right, name) and any(is_key(source, name) for source in left) for name in using]


def _comparisons(condition: exp.Expr, scope: Scope, right: str) -> Iterator[TimeComparison]:
    """Yield what a condition demands of the times of records."""
    condition = condition.unnest()
    match condition:
        case exp.And():
            yield from _comparisons(condition.left, scope, right)
            yield from _comparisons(condition.right, scope, right)
        case exp.Between() if not condition.args.get("symmetric"):
            time, args = condition.this, condition.args
            yield from _compared(time, ">=", args["low"], scope, right)
            yield from _compared(time, "<=", args["high"], scope, right)
        case _ if type(condition) in _OPERATORS:
            operator = _OPERATORS[type(condition)]
            yield from _compared(condition.this, operator, condition.expression, scope, right)


def _compared(
    first: exp.Expr, operator: Comparing, second: exp.Expr, scope: Scope, right: str
) -> Iterator[TimeComparison]:
    before, after = (_times(each, scope, right) for each in (first, second))
    if before is not None and after is not None:
        found = TimeComparison.of(before, operator, after)
        if found is not None:
            yield found


def _times(node: exp.Expr, scope: Scope, right: str) -> Times | None:
    """Return what an expression of times of records and intervals adds up to."""
    node = node.unnest()
    match node:
        case exp.Column():
            if not node.table or not is_column_of_records(node, "timestamp", scope):
                return None
            return Times(right=1) if node.table == right else Times(left=1)
        case exp.Add() | exp.Sub():
            first, second = (_times(each, scope, right) for each in (node.left, node.right))
            if first is None or second is None:
                return None
            return first + second if isinstance(node, exp.Add) else first - second
        case exp.Neg():
            found = _times(node.this, scope, right)
            return None if found is None else -found
        case exp.Interval():
            us = _microseconds(node)
            return None if us is None else Times(us=us)
    return None


def _microseconds(interval: exp.Interval) -> int | None:
    """Return how long an interval is."""
    amount, unit = interval.this, interval.args.get("unit")
    sign = -1 if isinstance(amount, exp.Neg) else 1
    amount = amount.this if isinstance(amount, exp.Neg) else amount
    if not isinstance(amount, exp.Literal):
        return None
    match unit:
        case exp.IntervalSpan():
            found = microseconds_between(amount.name, unit.name, unit.expression.name)
        case exp.Var() | None:
            found = microseconds(f"{amount.name} {unit.name if unit else ''}")
        case _:
            return None
    return None if found is None else sign * found

"""Reads from the text of a query whether the results are upserts by their key.

They are if each result replaces the former one that has its key, and nothing else: then the newest
result of each key is a row of a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.streams.sql.query_tree import is_column_of_records, parsed, quiet
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError

_KEY = "key"
_PLACE = "row_number()"
"""The name of the place of a row, whatever the query calls it."""

_WINDOWS = {"window": "window", CALENDAR_WINDOW: "window", "session_window": "session_window"}
"""The columns that functions give, by the names of these."""

_NO_KEY = "gives no column key"
_OWN_KEY = "gives a key, which two of its groups may have: leave it out"
_MAKING_ROWS = (exp.UDTF, exp.Lateral, exp.Inline, exp.Explode, exp.Pivot)
_INLINE_OUTER = "inline_outer"


def upsert_problem(
    query: str, tables: Collection[str], *, deletes: bool, is_inner: bool = False
) -> str:
    """Return why the results of a query are not upserts by their key; "" if they are.

    The words follow the name of the query. Its input has upserts, if it has no groups. Where it
    `deletes` results whose groups are gone, the key must tell all groups apart: a deletion could
    otherwise be that of another group. Without deletions, two groups that have one key are one row.
    One that `is_inner`, and gives no key, gets one of all its grouping columns.
    """
    try:
        with quiet():
            tree = parsed(query, tables)
            scopes = traverse_scope(tree)
            if not scopes or not isinstance(tree, exp.Select):
                return "is not a SELECT whose key can be followed"
            if tree.find(exp.Rank, exp.DenseRank):
                return "ranks rows, of which several may have one key"
            grouped = next((each for each in scopes if _group(each) or _numbering(each)), None)
            if grouped is None:
                return _problem_of_records(scopes[-1])
            if is_inner and _group(grouped) and None not in _parts(grouped):
                key = _found(exp.column(_KEY), scopes[-1], grouped, is_output=True)
                return "" if key is None else _OWN_KEY
            return _problem_of_groups(scopes[-1], grouped, deletes=deletes)
    except (SqlglotError, RecursionError, QueryError):
        return "has a text that cannot be read"


def ranks_rows(query: str, tables: Collection[str]) -> bool:
    """Whether a query that can be read gives rows that tie one place."""
    with quiet():
        return parsed(query, tables).find(exp.Rank, exp.DenseRank) is not None


def _problem_of_records(root: Scope) -> str:
    """See `upsert_problem`, for a query without groups."""
    calls = (each.name.lower() for each in root.expression.find_all(exp.Anonymous))
    if root.expression.find(*_MAKING_ROWS) or _INLINE_OUTER in calls:
        return "gives several rows for one key"
    given = [each for each in _selects(root) if each.alias_or_name == _KEY]
    stars = [each for each in _selects(root) if each.is_star]
    if not given and not stars:
        return _NO_KEY
    key = given[0].unalias() if given else exp.column(_KEY)
    return "" if is_column_of_records(key, _KEY, root) else "gives another key"


def _problem_of_groups(root: Scope, grouped: Scope, *, deletes: bool) -> str:
    """See `upsert_problem`, for a query that groups or numbers rows."""
    key = _found(exp.column(_KEY), root, grouped, is_output=True)
    if key is None:
        return _NO_KEY
    if key.has_aggregates:
        return "gives a key that is made of aggregates, which changes when they do"
    parts = [part for part in _parts(grouped) if part is not None]
    if len(parts) < len([*_parts(grouped)]):
        return "groups by sets of columns, so its key may be null"
    is_numbered = _numbering(grouped) is not None
    may_lose_groups = deletes or is_numbered or _leaves_out_groups(root, grouped)
    for part in parts:
        if part.names <= key.names or part.alias in key.names:
            continue
        if part.is_always_needed or may_lose_groups:
            return f"groups by {part.text}, which its key does not have"
    if not is_numbered:
        return ""
    known = {_PLACE}.union(*({*part.names, part.alias} for part in parts))
    if not key.names <= known:
        return "gives a key that is made of columns of the rows, so other rows have other keys"
    is_one = _PLACE in key.names or _keeps_one(root, grouped)
    return "" if is_one else "gives several rows for one key"


@dataclass(frozen=True, slots=True)
class _Made:
    """The columns below GROUP BY that an expression is made of."""

    names: frozenset[str]
    has_aggregates: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """A grouping column: what it is made of, and the name that SELECT may give it."""

    text: str
    names: frozenset[str]
    alias: str
    is_always_needed: bool


def _found(wanted: exp.Expr, scope: Scope, grouped: Scope, *, is_output: bool) -> _Made | None:
    """Return what an expression is made of at the SELECT that groups; `None` if nothing gives it.

    It is a column of the output of `scope`, or an expression over what the scope reads.
    """
    if is_output:
        for given in _selects(scope):
            if given.alias_or_name == wanted.name:
                return _found(given.unalias(), scope, grouped, is_output=False)
        stars = any(given.is_star for given in _selects(scope))
        return _found(exp.column(wanted.name), scope, grouped, is_output=False) if stars else None
    if scope is grouped:
        return _at_groups(wanted, scope)
    names, has_aggregates = set[str](), False
    for column in wanted.find_all(exp.Column):
        source = _source(column, scope)
        name = column.name if _is_of_source(column, scope) else column.table
        made = None
        if isinstance(source, Scope):
            made = _found(exp.column(name), source, grouped, is_output=True)
        if made is None:
            return None
        names |= made.names
        has_aggregates |= made.has_aggregates
    return _Made(frozenset(names), has_aggregates)


def _at_groups(wanted: exp.Expr, scope: Scope) -> _Made:
    """Return what an expression of the SELECT that groups is made of."""
    if wanted.find(exp.RowNumber):
        return _Made(frozenset({_PLACE}), has_aggregates=False)
    return _Made(_names(wanted, scope), wanted.find(exp.AggFunc) is not None)


def _names(expression: exp.Expr, scope: Scope) -> frozenset[str]:
    """Return the columns of an expression; a window that it makes is a column too."""
    calls = (each.name.lower() for each in expression.find_all(exp.Anonymous))
    windows = [_WINDOWS[name] for name in calls if name in _WINDOWS]
    if windows:
        return frozenset(windows)
    return frozenset(
        column.name if _is_of_source(column, scope) else column.table
        for column in expression.find_all(exp.Column)
    )


def _is_of_source(column: exp.Column, scope: Scope) -> bool:
    """Whether the name before the dot is what the column comes from, and not a struct."""
    return not column.table or column.table in scope.selected_sources


def _source(column: exp.Column, scope: Scope) -> exp.Table | Scope | None:
    sources = scope.selected_sources
    if column.table in sources:
        return sources[column.table][1]
    return next((source for _, source in sources.values()), None) if len(sources) == 1 else None


def _parts(scope: Scope) -> Iterator[_Part | None]:
    """Yield the grouping columns of a SELECT; `None` if it has grouping sets."""
    select = scope.expression
    group = select.args.get("group")
    if group is None:
        yield from (_part(each, scope) for each in _partition(scope))
        return
    if group.find(exp.Cube, exp.Rollup, exp.GroupingSets):
        yield None
        return
    columns = [each.unnest() for each in group.expressions]
    if group.args.get("all"):
        columns = [each for each in _selects(scope) if not each.find(exp.AggFunc)]
    for column in columns:
        if isinstance(column, exp.Literal) and column.is_int:
            column = _selects(scope)[int(column.name) - 1]
        yield _part(column, scope)


def _part(column: exp.Expr, scope: Scope) -> _Part:
    alias = column.alias_or_name
    made = column.unalias()
    if isinstance(made, exp.Column) and not made.table:
        given = (each for each in _selects(scope) if each.alias == made.name)
        made = next((each.unalias() for each in given), made)
    names = _names(made, scope)
    text = column.unalias().sql("spark")
    return _Part(text, names, alias, bool(names & {*_WINDOWS.values()}))


def _selects(scope: Scope) -> list[exp.Expr]:
    select = scope.expression
    return select.selects if isinstance(select, exp.Select) else []


def _group(scope: Scope) -> bool:
    return isinstance(scope.expression, exp.Select) and "group" in scope.expression.args


def _numbering(scope: Scope) -> exp.Window | None:
    if not isinstance(scope.expression, exp.Select):
        return None
    calls = scope.find_all(exp.Window)
    return next((call for call in calls if isinstance(call.this, exp.RowNumber)), None)


def _partition(scope: Scope) -> list[exp.Expr]:
    call = _numbering(scope)
    assert call is not None, "its rows are numbered"
    named = scope.expression.args.get("windows") or ()
    window = next((each for each in named if call.alias and each.name == call.alias), call)
    return list(window.args.get("partition_by") or ())


def _above(scope: Scope, grouped: Scope) -> Iterator[Scope]:
    """Yield a scope and those that it reads, down to the one that groups, without that."""
    if scope is grouped:
        return
    yield scope
    for _, source in scope.selected_sources.values():
        if isinstance(source, Scope):
            yield from _above(source, grouped)


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    plain = condition.unnest()
    if isinstance(plain, exp.And):
        yield from _conjuncts(plain.left)
        yield from _conjuncts(plain.right)
    else:
        yield plain


def _leaves_out_groups(root: Scope, grouped: Scope) -> bool:
    """Whether a group may lose its result: by HAVING, or by WHERE or a join above the groups."""
    return grouped.expression.args.get("having") is not None or any(
        scope.expression.args.get(name)
        for scope in _above(root, grouped)
        for name in ("where", "joins")
    )


def _keeps_one(root: Scope, grouped: Scope) -> bool:
    """Whether a condition such as `place = 1` keeps one row of each group."""
    call = _numbering(grouped)
    assert call is not None, "its rows are numbered"
    place = call.parent.alias if isinstance(call.parent, exp.Alias) else ""
    limits: tuple[tuple[type[exp.Expr], str], ...] = ((exp.EQ, "1"), (exp.LTE, "1"), (exp.LT, "2"))
    wheres = (scope.expression.args.get("where") for scope in _above(root, grouped))
    conditions = [each for where in wheres if where for each in _conjuncts(where.this)]
    return any(
        isinstance(each, kind)
        and isinstance(each.this, exp.Column)
        and each.this.name == place
        and each.expression.name == most
        for kind, most in limits
        for each in conditions
    )

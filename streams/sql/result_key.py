"""Reads from the text of a query whether the results are upserts by their key.

They are if each result replaces the former one that has its key, and nothing else: then the newest
result of each key is a row of a table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.streams.sql.query_tree import (
    is_column_of_records,
    numbering_of,
    parsed,
    partition_of,
    quiet,
)
from kafka_pipeline.streams.sql.spec import CALENDAR_WINDOW, QueryError
from kafka_pipeline.streams.sql.update_text import GROWING

_KEY = "key"
_PLACE = "row_number()"
"""The name of the place of a row, whatever the query calls it."""

_WINDOWS = {"window": "window", CALENDAR_WINDOW: "window", "session_window": "session_window"}
"""The columns that functions give, by the names of these."""

_SESSIONS = re.compile(r"session_window(_\d+)?")
_OF_WINDOWS = re.compile(r"((tumble|hop|cumulate|session)_)?window(_\d+)?")
"""The names of columns of windows, those of table functions too."""

_EMPTY_GROUPS = "a group whose rows are all gone"
_LEFT_OUT = "a group that HAVING or WHERE leaves out later"
_GROWN = "a session that has grown"
"""What has no result any more, whose key is deleted therefore."""

_NO_KEY = "gives no column key"
OWN_KEY = "gives a key, which two of its groups may have: leave it out"
"""Why results of groups in a query are not upserts, which get a key where they give none."""
_MAKING_ROWS = (exp.UDTF, exp.Lateral, exp.Inline, exp.Explode, exp.Pivot)
_INLINE_OUTER = "inline_outer"
_SETS = (exp.Cube, exp.Rollup, exp.GroupingSets)


def upsert_problem(query: str, tables: Collection[str], *, deletes: bool, is_inner: bool) -> str:
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
            grouped = _grouping(scopes)
            if grouped is None:
                return _problem_of_records(scopes[-1])
            if is_inner and _numbering(grouped) is None and not _has_sets(grouped):
                key = _found(exp.column(_KEY), scopes[-1], grouped, is_output=True)
                return "" if key is None else OWN_KEY
            return _problem_of_groups(scopes[-1], grouped, deletes=deletes)
    except (SqlglotError, RecursionError, QueryError):
        return "has a text that cannot be read"


@dataclass(frozen=True, slots=True)
class SharedKey:
    """What is wrong with the key of results, which several groups may have.

    `missing` are the grouping columns that it does not have, and `all_columns` those that it should
    have, as expressions. `deleted` says whose key is deleted, although another group may have it.
    """

    missing: Sequence[str]
    all_columns: Sequence[str]
    deleted: str


def shared_key(
    query: str, tables: Collection[str], *, deletes: bool, key: Sequence[str] = (_KEY,)
) -> SharedKey | None:
    """Return how a deletion of one group may be that of another one, which is still there.

    That is so if the columns `key` of the results do not tell groups apart that can lose their
    result: because the query `deletes` those whose rows are gone, or by HAVING and the like. `None`
    if nothing is wrong, or if the text does not show what the key is made of. A key that is made of
    aggregates is never deleted.
    """
    try:
        with quiet():
            scopes = traverse_scope(parsed(query, tables))
            grouped = _grouping(scopes)
            if grouped is None:
                return None
            found = [_found(exp.column(name), scopes[-1], grouped, is_output=True) for name in key]
            given = [each for each in found if each is not None and not each.has_aggregates]
            if len(given) < len(key):
                return None
            made = _Made(frozenset().union(*(each.names for each in given)), has_aggregates=False)
            parts, is_numbered = [*_parts(grouped)], _numbering(grouped) is not None
            if is_numbered and not made.names <= _known(grouped):
                return None  # such a key is refused with Spark, which knows more of it
            missing = [part.text for part in parts if not part.is_in(made)]
            lost = _lost(scopes[-1], grouped, made, deletes=deletes)
    except (SqlglotError, RecursionError, QueryError):
        return None
    if not missing or not lost:
        return None
    wanted = [*(part.as_text for part in parts), *([_place_name(grouped)] if is_numbered else [])]
    return SharedKey(missing, wanted, lost)


def identity_columns(query: str, tables: Collection[str]) -> frozenset[str] | None:
    """Return the columns of the results of an inner query with groups that tell these apart.

    The engine makes a key of the grouping columns where there is none. `None` if the results lack
    one of these.
    """
    try:
        with quiet():
            scopes = traverse_scope(parsed(query, tables))
            grouped = _grouping(scopes)
            if grouped is None:
                return None
            if _found(exp.column(_KEY), scopes[-1], grouped, is_output=True) is not None:
                return frozenset({_KEY})
            names = [_name_of(part, scopes[-1], grouped) for part in _parts(grouped)]
    except (SqlglotError, RecursionError, QueryError):
        return None
    return None if None in names else frozenset(name for name in names if name is not None)


def _name_of(part: _Part, scope: Scope, grouped: Scope) -> str | None:
    """Return what the output of a scope calls a grouping column as it is."""
    if scope is grouped:
        for given in _selects(scope):
            made = given.unalias()
            is_named = given.alias == part.alias and all(
                column.name != part.alias for column in made.find_all(exp.Column)
            )
            if is_named or made.sql("spark") == part.text or _is_window(made, part):
                return given.alias_or_name
        return None
    below = next((each for _, each in scope.selected_sources.values()), None)
    name = _name_of(part, below, grouped) if isinstance(below, Scope) else None
    if name is None or len(scope.selected_sources) > 1:
        return None
    for given in _selects(scope):
        made = given.unalias()
        if given.is_star:
            return name
        if isinstance(made, exp.Column) and made.name == name:
            return given.alias_or_name
    return None


def _is_window(given: exp.Expr, part: _Part) -> bool:
    """Whether an expression is the windows of a grouping column, or one of their bounds.

    One bound tells windows apart. Sessions have both bounds.
    """
    if not part.is_window or not isinstance(given, exp.Column):
        return False
    is_bound = given.name in ("start", "end") and not any(map(_SESSIONS.fullmatch, part.names))
    return (given.table if is_bound else given.name) in {*part.names, part.alias}


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
    if _has_sets(grouped):
        return "groups by sets of columns, so its key may be null"
    parts = [*_parts(grouped)]
    is_numbered = _numbering(grouped) is not None
    may_lose_groups = is_numbered or _lost(root, grouped, key, deletes=deletes)
    for part in parts:
        if not part.is_in(key) and (part.is_window or may_lose_groups):
            return f"groups by {part.text}, which its key does not have"
    if not is_numbered:
        return ""
    if not key.names <= _known(grouped):
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
    is_window: bool

    def is_in(self, made: _Made) -> bool:
        """Whether something is made of the column, among others."""
        return self.names <= made.names or self.alias in made.names

    @property
    def as_text(self) -> str:
        """An expression that tells its values apart."""
        return f"{next(iter(self.names))}.start" if self.is_window else self.text


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
    """Return what an expression of the SELECT that groups is made of.

    It may name another column of that SELECT, unless the name is that of a grouping column.
    """
    if wanted.find(exp.RowNumber):
        return _Made(frozenset({_PLACE}), has_aggregates=False)
    names = _names(wanted, scope)
    given = {each.alias: each.unalias() for each in _selects(scope) if each.alias}
    named = names.difference(*(part.names for part in _parts(scope))) & given.keys()
    made_of = [wanted, *(given[name] for name in named)]
    if any(each.find(exp.RowNumber) for each in made_of):
        names |= {_PLACE}
    return _Made(
        names.union(*(_names(each, scope) for each in made_of)),
        any(each.find(exp.AggFunc) for each in made_of),
    )


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


def _has_sets(scope: Scope) -> bool:
    """Whether a SELECT groups by sets of columns."""
    group = scope.expression.args.get("group")
    return group is not None and group.find(*_SETS) is not None


def _parts(scope: Scope) -> Iterator[_Part]:
    """Yield the grouping columns of a SELECT."""
    select = scope.expression
    group = select.args.get("group")
    if group is None:
        made = _selects(scope) if _is_distinct(scope) else partition_of(_numbering(scope), scope)
        yield from (_part(each, scope) for each in made)
        return
    columns = [each.unnest() for each in group.expressions if not isinstance(each, _SETS)]
    for sets in group.find_all(*_SETS):
        columns += [each for each in sets.find_all(exp.Column) if each not in columns]
    if group.args.get("all"):
        columns = [each for each in _selects(scope) if not each.find(exp.AggFunc)]
    for column in columns:
        if isinstance(column, exp.Literal) and column.is_int:
            column = _selects(scope)[int(column.name) - 1]
        yield _part(column, scope)


def _known(grouped: Scope) -> set[str]:
    """Return the columns that are the same for a group: what it is grouped by, and its places."""
    return {_PLACE}.union(*({*part.names, part.alias} for part in _parts(grouped)))


def _place_name(grouped: Scope) -> str:
    """Return what a query calls the place of a row."""
    call = _numbering(grouped)
    assert call is not None, "its rows are numbered"
    return call.parent.alias if isinstance(call.parent, exp.Alias) else ""


def _part(column: exp.Expr, scope: Scope) -> _Part:
    alias = column.alias_or_name
    made = column.unalias()
    if isinstance(made, exp.Column) and not made.table:
        given = (each for each in _selects(scope) if each.alias == made.name)
        made = next((each.unalias() for each in given), made)
    names = _names(made, scope)
    text = column.unalias().sql("spark")
    return _Part(text, names, alias, any(map(_OF_WINDOWS.fullmatch, names)))


def _selects(scope: Scope) -> list[exp.Expr]:
    select = scope.expression
    return select.selects if isinstance(select, exp.Select) else []


def _group(scope: Scope) -> bool:
    return isinstance(scope.expression, exp.Select) and "group" in scope.expression.args


def _grouping(scopes: Sequence[Scope]) -> Scope | None:
    """Return the SELECT that groups, numbers rows, or removes duplicates."""
    grouping = (each for each in scopes if _group(each) or _numbering(each) or _is_distinct(each))
    return next(grouping, None)


def _is_distinct(scope: Scope) -> bool:
    return scope.expression.args.get("distinct") is not None


def _numbering(scope: Scope) -> exp.Window | None:
    return numbering_of(scope, (exp.RowNumber,))


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


def _lost(root: Scope, grouped: Scope, key: _Made, *, deletes: bool) -> str:
    """Return which groups may lose their result, or which results their key; "" if none does.

    The groups are over records, unless the query `deletes`.
    """
    if deletes:
        return _EMPTY_GROUPS
    if any(map(_SESSIONS.fullmatch, key.names)):
        return _GROWN
    scopes = [*_above(root, grouped)]
    conditions = [(grouped, grouped.expression.args.get("having"))]
    conditions += [(scope, scope.expression.args.get("where")) for scope in scopes]
    is_left_out = any(scope.expression.args.get("joins") for scope in scopes) or any(
        not _goes_on(each, scope, grouped)
        for scope, condition in conditions
        if condition is not None
        for each in _conjuncts(condition.this)
    )
    return _LEFT_OUT if is_left_out else ""


def _goes_on(condition: exp.Expr, scope: Scope, grouped: Scope) -> bool:
    """Whether a condition that is true for a group stays true as records come.

    That is so if it is only about grouping columns or places of rows, or compares what grows.
    """
    if condition.find(exp.Query):
        return False
    known = _known(grouped)
    made = _found(condition, scope, grouped, is_output=False)
    if made is not None and not made.has_aggregates and made.names <= known:
        return True
    if not isinstance(condition, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return False
    is_less = isinstance(condition, exp.LT | exp.LTE)
    left, right = condition.left.unnest(), condition.right.unnest()
    if isinstance(left, exp.Literal):
        left, right, is_less = right, left, not is_less
    if not isinstance(right, exp.Literal):
        return False
    function = _aggregate(left, scope, grouped)
    return isinstance(function, exp.Min if is_less else GROWING)


def _aggregate(value: exp.Expr, scope: Scope, grouped: Scope) -> exp.Expr | None:
    """Return the aggregate function that an expression is, or that the column is which it names."""
    if not isinstance(value, exp.Column):
        function: exp.Expr = value.this if isinstance(value, exp.Filter) else value
        return function if scope is grouped else None
    source = scope if scope is grouped else _source(value, scope)
    selects = _selects(source) if isinstance(source, Scope) else []
    found = next((each.unalias() for each in selects if each.alias_or_name == value.name), None)
    if found is None or found is value or not isinstance(source, Scope):
        return None
    is_same = isinstance(found, exp.Column) and source is grouped
    return None if is_same else _aggregate(found, source, grouped)


def _keeps_one(root: Scope, grouped: Scope) -> bool:
    """Whether a condition such as `place = 1` keeps one row of each group."""
    place = _place_name(grouped)
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

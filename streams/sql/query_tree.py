"""The groups and calendar windows of a query, found by sqlglot in its text.

It is imported late, and only for queries that may group records or join inputs: loading sqlglot
takes a quarter of a second.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import Scope, traverse_scope

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.pipelines.specs import CalendarSpec, SessionSpec, WindowSpec, WindowsSpec
from kafka_pipeline.streams.sql.spec import (
    CALENDAR_WINDOW,
    NO_NUMBERED_SESSIONS,
    GroupBy,
    QueryError,
)
from kafka_pipeline.streams.sql.table_functions import UNITS_US
from kafka_pipeline.streams.sql.window_columns import without_table_functions

_KEY, _TIME = "key", "timestamp"
_IS_LOOKUP = "is a lookup table"
_SHOWN = 30
"""How many characters of a query an error shows."""

_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s+([a-z]+)\s*")
_BETWEEN = re.compile(r"\s*([+-]?)((?:\d+[ :])*)(\d+(?:\.\d+)?)\s*")
_SPANNED = ("DAY", "HOUR", "MINUTE", "SECOND")
"""The units from one to another, such as in `INTERVAL '1:30' HOUR TO MINUTE`."""
_SEVERAL = (
    "the query has several statements, with a semicolon between them: write one SELECT, and give "
    "each further one a processor of its own"
)
_HOW = "write its times as text, such as window(timestamp, '1 hour')"

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)

NUMBERING = (exp.RowNumber, exp.Rank, exp.DenseRank)

_Time = str | int | None
"""An argument of `window(…)`: text, microseconds, or `None` for any other expression."""


def find_groups(query: str, tables: Collection[str]) -> GroupBy | None:
    """Return what a query groups records by; `None` if it groups no records but those of `tables`.

    That is by GROUP BY, SELECT DISTINCT, or the PARTITION BY of `row_number()` or a rank. If
    several parts of the query group records, the key must be a grouping column of each; `columns`
    are those of the first one. Raises `QueryError` for windows that are not possible, and with the
    place if sqlglot cannot read the query.
    """
    try:
        with quiet():
            return _groups(parsed(query, tables))
    except (SqlglotError, RecursionError) as error:
        raise _unreadable(place_of(error, query)) from error


def find_tables(query: str) -> frozenset[str]:
    """Return the names of all tables that a query reads, in small letters, without its CTEs."""
    with quiet():
        scopes = traverse_scope(parsed(query, ()))
        read = [source for scope in scopes for _, source in sources_of(scope).values()]
    return frozenset(source.name for source in read if isinstance(source, exp.Table))


def require_readable(query: str, tables: Collection[str]) -> None:
    """Raise `QueryError` with the place if sqlglot cannot read a query."""
    try:
        with quiet():
            parsed(query, tables)
    except (SqlglotError, RecursionError) as error:
        raise _unreadable(place_of(error, query), "joins") from error


def without_end(query: str) -> str:
    """Return a query without the semicolons and comments that may follow it."""
    try:
        tokens = _without_last_semicolons(Spark().tokenize(query))
    except TokenError:
        return query  # what reads it again reports why
    return query[: tokens[-1].end + 1] if tokens else query


def require_one_statement(query: str) -> None:
    """Raise `QueryError` if semicolons separate statements in a query."""
    try:
        tokens = _without_last_semicolons(Spark().tokenize(query))
    except TokenError:
        return
    if any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise QueryError(_SEVERAL)


def _without_last_semicolons(tokens: list[Token]) -> list[Token]:
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens = tokens[:-1]
    return tokens


def _unreadable(place: str, what: str = "groups") -> QueryError:
    return QueryError(
        f"the {what} of the query cannot be read: reading stopped {place}. Spark may accept the "
        "query, but stores and topics must be known before Spark reads it. Write this part in "
        "another way, or move it to a sql processor before or after this one"
    )


def place_of(error: SqlglotError | RecursionError, query: str) -> str:
    """Say where reading a query stopped."""
    match error:
        case ParseError(errors=[{"line": line, "highlight": found, "start_context": before}]):
            return f'in line {line} at "{found}", after "{_last_of(before)}"'
        case TokenError(end=int(end)):
            return f'after "{_last_of(query[: end + 1])}", where a quote or a comment may be open'
        case RecursionError():
            return "because it is nested too deeply"
    return f"({error})"


def _last_of(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _SHOWN else f"…{words[-_SHOWN:]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what sqlglot logs in this thread. Statements that it does not know are errors here."""
    logger, thread = logging.getLogger("sqlglot"), threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_of_others)
    try:
        yield
    finally:
        logger.removeFilter(is_of_others)


def parsed(query: str, tables: Collection[str]) -> exp.Query:
    """Return the tree of a query, with names in small letters and an alias for each table.

    Lookup tables are marked as such. Table functions are subqueries. Do not change the tree: all
    callers with the same query share it, as each start of a task asks several questions about it.
    """
    return _parsed(query, frozenset(tables))


@lru_cache(maxsize=32)
def _parsed(query: str, tables: frozenset[str]) -> exp.Query:
    return _tree(without_table_functions(query, _tree), tables)


def _tree(query: str, tables: Collection[str] = ()) -> exp.Query:
    dialect = Spark()
    tokens = dialect.tokenize(query)
    for before, token in pairwise(tokens):
        # Otherwise, sqlglot takes `window`, `offset` or `format` for the clause of this name.
        is_clause = token.token_type in Spark.Parser.QUERY_MODIFIER_TOKENS
        if is_clause and before.token_type == TokenType.GROUP_BY:
            token.token_type = TokenType.VAR
    statements = [
        statement
        for statement in dialect.parser().parse(tokens, query)
        if statement is not None and not isinstance(statement, exp.Semicolon)
    ]
    if len(statements) > 1:
        raise QueryError(_SEVERAL)
    if not statements or not isinstance(statements[0], exp.Query):
        raise QueryError("only a SELECT that reads input can be run")
    tree = normalize_identifiers(statements[0], dialect=dialect)
    known = {name.lower() for name in tables}
    for table in tree.find_all(exp.Table):
        table.meta[_IS_LOOKUP] = table.name in known
    return qualify_tables(tree, dialect=dialect)


def reading_scopes(tree: exp.Query) -> list[Scope]:
    """Return the parts of a query that read inputs, the inner ones first."""
    reading: list[Scope] = []
    for scope in traverse_scope(tree):  # what a scope reads comes before it
        if any(is_input(source) or source in reading for source in _sources(scope)):
            reading.append(scope)
    return reading


def _groups(tree: exp.Query) -> GroupBy | None:
    reading = reading_scopes(tree)
    grouped = [scope for scope in reading if is_grouped(scope) or numbering_of(scope)]
    _require_calendar_in_groups(tree, is_grouped=bool(grouped))
    if not grouped:
        return None
    for scope in reading:
        _require_calendar_of_records(scope)
    calls = [call for scope in reading for call in scope.find_all(exp.Anonymous)]
    windows = {
        make([_time(time) for time in call.expressions[1:]])
        for name, make in _WINDOWS.items()
        for call in calls
        if call.name.lower() == name
    }
    if len(windows) > 1:
        raise QueryError(
            "one SELECT has two different windows: put one of them into a subquery of FROM, with a "
            "GROUP BY of its own"
        )
    window, is_numbered = next(iter(windows), None), not is_grouped(grouped[0])
    if is_numbered and isinstance(window, SessionSpec):
        raise QueryError(NO_NUMBERED_SESSIONS)
    has_key = all(_has_key(scope) for scope in grouped)
    return GroupBy(
        window, has_key, _grouping_columns(grouped[0]), is_numbered, _has_distinct(grouped)
    )


def _require_calendar_in_groups(tree: exp.Query, *, is_grouped: bool) -> None:
    """Raise `QueryError` for calendar windows of no groups, and for a column of their name."""
    calls = (call for call in tree.find_all(exp.Anonymous) if call.name.lower() == CALENDAR_WINDOW)
    if next(calls, None) is None:
        return
    if not is_grouped:
        raise QueryError(
            f"{CALENDAR_WINDOW}(…) says which records are a group: write it into GROUP BY, "
            "PARTITION BY or SELECT DISTINCT"
        )
    given = {alias.alias for alias in tree.find_all(exp.Alias)}
    named = {part.name for column in tree.find_all(exp.Column) for part in column.parts}
    if CALENDAR_WINDOW in named - given:
        raise QueryError(
            f"{CALENDAR_WINDOW}(…) gives the column window, as window(…) does: write window, "
            "window.start or window.end"
        )


def _require_calendar_of_records(scope: Scope) -> None:
    """Raise `QueryError` for calendar windows over another column than the time of the records."""
    for call in scope.find_all(exp.Anonymous):
        over = next(iter(call.expressions), None)
        if call.name.lower() != CALENDAR_WINDOW or over is None:
            continue
        if not is_column_of_records(over, _TIME, scope):
            raise QueryError(
                f"{CALENDAR_WINDOW}(…) is over {over.sql('spark')}: it must be over timestamp, the "
                "time of the record. If the time is in a field, the source names it: timestamp: "
                "{field: …}"
            )


def _grouping_columns(scope: Scope) -> list[str]:
    """Return what a SELECT groups by; with ALL or DISTINCT, what it gives."""
    select = scope.expression
    assert isinstance(select, exp.Select), "nothing else is grouped"
    group = select.args.get("group")
    named = [] if group is None else group.expressions
    if not is_grouped(scope):
        named = partition_of(numbering_of(scope), scope)
    return [column.unalias().sql("spark") for column in named or select.selects]


def is_grouped(scope: Scope) -> bool:
    """Whether a part of a query has GROUP BY or DISTINCT."""
    names = ("group", "distinct")
    select = scope.expression
    return isinstance(select, exp.Select) and any(map(select.args.get, names))


def _has_distinct(grouped: Sequence[Scope]) -> bool:
    """Whether a function has DISTINCT in its arguments, as in `count(DISTINCT a)`."""
    return any(
        not isinstance(distinct.parent, exp.Select)
        for scope in grouped
        for distinct in scope.find_all(exp.Distinct)
    )


def numbering_of(
    scope: Scope, functions: tuple[type[exp.Expr], ...] = NUMBERING
) -> exp.Window | None:
    """Return the first function of a SELECT that numbers rows, such as `row_number() OVER …`."""
    if not isinstance(scope.expression, exp.Select):
        return None
    calls = scope.find_all(exp.Window)
    return next((call for call in calls if isinstance(call.this, functions)), None)


def partition_of(call: exp.Window | None, scope: Scope) -> list[exp.Expr]:
    """Return what the function of a SELECT that numbers rows has in PARTITION BY."""
    assert call is not None, "its rows are numbered"
    return list(definition_of(call, scope).args.get("partition_by") or ())


def definition_of(call: exp.Window, scope: Scope) -> exp.Window:
    """Return the window of a call, which may be a named one."""
    named = scope.expression.args.get("windows") or ()
    return next((each for each in named if call.alias and each.name == call.alias), call)


def _sources(scope: Scope) -> list[exp.Table | Scope]:
    """Return what a scope reads, that of FROM first."""
    selected = [source for _, source in scope.selected_sources.values()]
    clause = scope.find(exp.From)
    if clause is not None and not selected:
        raise _unreadable(f'at "{clause.sql("spark")}"')
    return [*selected, *scope.set_operation_scopes]


def is_input(source: exp.Table | Scope) -> bool:
    """Whether a source is an input: a name that is not that of a lookup table."""
    return (
        isinstance(source, exp.Table)
        and isinstance(source.this, exp.Identifier)
        and not source.db
        and not source.meta.get(_IS_LOOKUP)
    )


def _time(node: exp.Expr) -> _Time:
    match node:
        case exp.RawString() | exp.Literal(is_string=True):
            return node.name
        case exp.Literal(is_int=True):
            return int(node.name)
        case exp.Cast(this=exp.Literal(is_int=True)) if node.is_type("bigint"):  # as in 1000L
            return int(node.name)
        case exp.Neg():
            time = _time(node.this)
            return -time if isinstance(time, int) else None
    return None


def _window(times: Sequence[_Time]) -> WindowSpec:
    if not 1 <= len(times) <= 3:
        raise QueryError(f"window(…) takes a time and a duration: {_HOW}")
    size, slide, start = ([_milliseconds(time) for time in times] + [None, None])[:3]
    assert size is not None
    slide, start = size if slide is None else slide, start or 0
    if not 0 < slide <= size or abs(start) >= slide:
        raise QueryError(
            "window(…) needs a duration above 0, a slide of up to the duration, and a start below "
            "the slide"
        )
    return WindowSpec(size_ms=size, slide_ms=slide, start_ms=start)


def _calendar(arguments: Sequence[_Time]) -> CalendarSpec:
    match arguments:
        case [str(period), str(zone)]:
            try:
                Calendar(period, zone)
            except ValueError as error:
                raise QueryError(f"{CALENDAR_WINDOW}(…): {error}") from None
            return CalendarSpec(period=period, zone=zone)
    raise QueryError(
        f"{CALENDAR_WINDOW}(…) takes timestamp, and a period and a zone as text: write "
        f"{CALENDAR_WINDOW}(timestamp, '1 day', 'Europe/Berlin')"
    )


def _session(times: Sequence[_Time]) -> SessionSpec:
    gap = microseconds(times[0]) if len(times) == 1 and isinstance(times[0], str) else None
    if gap is None:
        raise QueryError(
            "the gap of session_window(…) cannot be read: write it as text, such as "
            "session_window(timestamp, '5 minutes')"
        )
    if gap <= 0 or gap % 1000:
        raise QueryError("the gap of session_window(…) must be whole milliseconds, 1 or more")
    return SessionSpec(gap_ms=gap // 1000)


def _milliseconds(time: _Time) -> int:
    found = microseconds(time) if isinstance(time, str) else time
    if found is None:
        raise QueryError(f"the times of window(…) cannot be read: {_HOW}")
    if found % 1000:
        raise QueryError("the times of window(…) must be whole milliseconds")
    return found // 1000


def microseconds(text: str) -> int | None:
    """Return how long an interval such as `1 hour 30 minutes` is; `None` if it cannot be read."""
    text, total = text.strip().lower().removeprefix("interval "), 0
    while text:
        found = _PART.match(text)
        unit = found[2].removesuffix("s") if found else ""
        if found is None or unit not in UNITS_US or ("." in found[1] and unit != "second"):
            return None
        total += int(Decimal(found[1]) * UNITS_US[unit])
        text = text[found.end() :]
    return total


def microseconds_between(text: str, first: str, last: str) -> int | None:
    """Return how long text such as `1:30` is from a unit to another one, such as HOUR and MINUTE.

    Returns `None` if it cannot be read.
    """
    found = _BETWEEN.fullmatch(text)
    if found is None or not {first, last} <= {*_SPANNED}:
        return None
    units = _SPANNED[_SPANNED.index(first) : _SPANNED.index(last) + 1]
    amounts = [*found[2].replace(":", " ").split(), found[3]]
    if len(amounts) != len(units) or ("." in found[3] and last != "SECOND"):
        return None
    parts = (f"{each} {unit}" for each, unit in zip(amounts, units, strict=True))
    total = microseconds(" ".join(parts))
    return -total if total is not None and found[1] == "-" else total


_WINDOWS: dict[str, Callable[[Sequence[_Time]], WindowsSpec]] = {
    "window": _window,
    CALENDAR_WINDOW: _calendar,
    "session_window": _session,
}
"""The functions that give windows, with what reads their arguments, but for the first one."""


def _has_key(scope: Scope) -> bool:
    """Whether the key of the records is a grouping column, in each grouping set."""
    select = scope.expression
    assert isinstance(select, exp.Select), "nothing else is grouped"
    if not is_grouped(scope):
        return any(
            is_column_of_records(each, _KEY, scope)
            for each in partition_of(numbering_of(scope), scope)
        )
    group = select.args.get("group")
    if group is None:
        return any(
            _star_gives(column, _KEY, _KEY, scope)
            if column.is_star
            else is_column_of_records(column.unalias(), _KEY, scope)
            for column in select.selects
        )
    if any(group.args.get(name) for name in ("cube", "rollup", "grouping_sets")):
        return False
    columns = _columns(group, select.selects)
    return any(is_column_of_records(column, _KEY, scope) for column in columns)


def _columns(group: exp.Group, selected: list[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield what GROUP BY names, and for positions, aliases and ALL what SELECT has there.

    An alias may also be that of a column of the records. If SELECT gives that name to the key,
    Spark then wants the key among the grouping columns too.
    """
    if group.args.get("all"):
        yield from (given.unalias() for given in selected)
    for column in (each.unnest() for each in group.expressions):
        yield column
        if isinstance(column, exp.Literal) and column.is_int:
            before = selected[: int(column.name)]
            if not any(given.is_star for given in before):
                yield from (given.unalias() for given in before[-1:])
        elif isinstance(column, exp.Column) and not column.table:
            yield from (given.unalias() for given in selected if given.alias == column.name)


def is_column_of_records(column: exp.Expr, wanted: str, scope: Scope) -> bool:
    """Whether a column of what a scope reads is the column of records called `wanted`."""
    column = column.unnest()
    if not isinstance(column, exp.Column) or column.args.get("db"):
        return False
    sources = sources_of(scope)
    if column.table:
        return column.table in sources and _gives(sources[column.table][1], column.name, wanted)
    merging = [join for join in scope.expression.args.get("joins") or () if _merges(join, column)]
    if any(join.side in ("RIGHT", "FULL") for join in merging):
        return False
    candidates = [source for _, source in sources.values()]
    candidates = candidates[: 1 if merging else None]
    return any(_gives(source, column.name, wanted) for source in candidates)


def sources_of(scope: Scope) -> dict[str, tuple[exp.Expr, exp.Table | Scope]]:
    """Return what a scope reads, by alias: also what only a SEMI or ANTI JOIN looks at."""
    given = {name: node for name, node in scope.references if name in scope.sources}
    return {name: (node, scope.sources[name]) for name, node in given.items()}


def _merges(join: exp.Join, column: exp.Column) -> bool:
    """Whether a join makes one column of those with this name on its two sides."""
    using = [name.name for name in join.args.get("using") or ()]
    return join.method == "NATURAL" or column.name in using


def _gives(source: exp.Table | Scope, name: str, wanted: str) -> bool:
    """Whether a column of a source is the column of records called `wanted`."""
    if isinstance(source, exp.Table):
        return is_input(source) and name == wanted and not source.alias_column_names
    if not isinstance(source.expression, exp.Select):
        return False
    given = source.expression.selects
    names = source.outer_columns or [column.alias_or_name for column in given]
    if source.outer_columns and any(column.is_star for column in given):
        return False  # the names are by position
    return any(
        _star_gives(column, name, wanted, source)
        if column.is_star
        else alias == name and is_column_of_records(column.unalias(), wanted, source)
        for alias, column in zip(names, given, strict=False)
    )


def _star_gives(star: exp.Expr, name: str, wanted: str, scope: Scope) -> bool:
    table = star.args.get("table")
    left_out = (star.this if isinstance(star, exp.Column) else star).args.get("except_") or ()
    if name in [each.name for each in left_out]:
        return False
    return is_column_of_records(exp.column(name, table), wanted, scope)


def with_plain_windows(query: str) -> str:
    """Return a query with `window(…, '1 day')` in place of each `calendar_window(…, …, …)`.

    Spark, which has no calendars, so finds the place of the window; `window_plan.py` then puts the
    periods there. Table functions become subqueries. The query must be one that `read_groups` can
    read. Raises `QueryError` for table functions that are not possible.
    """
    try:
        with quiet():
            query = without_table_functions(query, _tree)
    except (SqlglotError, RecursionError) as error:
        raise _unreadable(place_of(error, query)) from error
    made, at = "", 0
    for name, comma, end in _calls(Spark().tokenize(query)):
        made += f"{query[at : name.start]}window{query[name.end + 1 : comma.start]}, '1 day'"
        at = end.start
    return made + query[at:]


def _calls(tokens: Sequence[Token]) -> Iterator[tuple[Token, Token, Token]]:
    """Yield the name of each call, its first comma, and its closing parenthesis."""
    for index, (name, following) in enumerate(pairwise(tokens)):
        if name.text.lower() != CALENDAR_WINDOW or following.token_type != TokenType.L_PAREN:
            continue
        depth, commas = 0, list[Token]()
        for token in tokens[index + 1 :]:
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            if depth == 0:
                yield name, commas[0], token
                break
            if depth == 1 and token.token_type == TokenType.COMMA:
                commas.append(token)

"""TUMBLE, HOP, CUMULATE and SESSION in FROM, as in Flink and in standard SQL.

Spark has no such table functions, and sqlglot cannot read their arguments. So the tokens of a call
become a subquery, which adds a column of windows to those that the function gives:

    TUMBLE(TABLE input, DESCRIPTOR(timestamp), INTERVAL '10' MINUTES)

    (SELECT *, tumble_window.start AS window_start, …
     FROM (SELECT *, window(timestamp, '10 MINUTES') AS tumble_window FROM input))

`window_columns.py` then has the query group by that column. Only these places of the text change,
and each line stays where it is.

The windows of CUMULATE begin with those of TUMBLE, and end a step apart. One that ends at a time
has the rows of the window of HOP that ends then, without those before its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

from kafka_pipeline.streams.sql.spec import QueryError

PARTS = {
    "window_start": "{}.start",
    "window_end": "{}.end",
    "window_time": "{}.end - INTERVAL '1' MILLISECOND",
}
"""The columns that a table function adds, as expressions of its column of windows."""

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
"""The units of intervals in queries."""

SESSION = "session"
_CUMULATE = "cumulate"
_STARTS_OF_SIZE = (
    "timestamp_millis(unix_millis({{0}}.end) - 1 - pmod(unix_millis({{0}}.end) {shift:+d}, {size}))"
)
"""When the window of CUMULATE with a `size` in ms starts that ends with a window."""
_ARGUMENTS = {
    "tumble": ("data", "timecol", "size", "offset"),
    "hop": ("data", "timecol", "slide", "size", "offset"),
    SESSION: ("data", "timecol", "gap"),
    _CUMULATE: ("data", "timecol", "step", "size", "offset"),
}
"""The arguments of each function in their order. All but the offset are required."""

NAMES = frozenset(_ARGUMENTS)
"""The names of the functions, in small letters."""

_INTERVAL = re.compile(
    r"interval\s+'?\s*([+-]?\d+)\s*'?\s*((?:millisecond|second|minute|hour|day|week)s?)\s*'?",
    re.IGNORECASE,
)
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)

Edit = tuple[int, int, str]
"""The text from a position up to another one, exclusive, is replaced by this text."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a table function, whose `windows` are in the column of that name.

    `keys` are the columns in PARTITION BY, in small letters. `starts` is the expression of when a
    window starts.
    """

    function: str
    line: int
    windows: str
    keys: Sequence[str] = ()
    starts: str = PARTS["window_start"]

    def part(self, name: str, windows: str) -> str:
        """Return the expression of one of the `PARTS` of windows in a column."""
        return (self.starts if name == "window_start" else PARTS[name]).format(windows)

    def error(self, problem: str) -> QueryError:
        """Return the error that names the call and its place."""
        return QueryError(f"{self.function.upper()}(…) in line {self.line}: {problem}")


@dataclass(frozen=True, slots=True)
class Expanded:
    """The `text` of a query with a subquery in place of each of these calls."""

    text: str
    calls: Sequence[Call]


def expanded(query: str, first_line: int = 1, calls_before: int = 0) -> Expanded:
    """Return a query with subqueries in place of its calls of table functions.

    Raises `QueryError` for calls that are not possible, with their place.
    """
    tokens = Spark().tokenize(query)
    calls, edits, at = list[Call](), list[Edit](), 0
    while at < len(tokens):
        found = _Found.at(query, tokens, at)
        if found is None:
            at += 1
            continue
        number = calls_before + len(calls) + 1
        name = found.name.text.lower()
        windows = f"{name}_window" if number == 1 else f"{name}_window_{number}"
        call = Call(name, first_line + found.name.line - 1, windows)
        if found.is_former:
            raise call.error(
                f"it is a table function here: write FROM {name.upper()}(TABLE input, "
                "DESCRIPTOR(timestamp), …) GROUP BY window_start, window_end"
            )
        subquery, inner = _subquery(call, found, number)
        calls += inner
        start, end = tokens[at].start, tokens[found.last].end + 1
        lines = query.count("\n", start, end) - subquery.count("\n")
        edits.append((start, end, subquery + "\n" * lines))
        at = found.last + 1
    return Expanded(edited(query, edits), calls)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with these edits, which do not overlap."""
    made, at = "", 0
    for start, end, new in sorted(edits):
        made += text[at:start] + new
        at = end
    return made + text[at:]


@dataclass(frozen=True, slots=True)
class _Found:
    """The tokens of a call; `last` is the index of its last one, also of TABLE(…) around it.

    `is_former` says that it is a function in GROUP BY, as Flink had it before.
    """

    query: str
    name: Token
    arguments: Sequence[Sequence[Token]] = field(repr=False)
    last: int
    is_former: bool

    @classmethod
    def at(cls, query: str, tokens: Sequence[Token], at: int) -> _Found | None:
        """Return the call that begins with a token, if one does."""
        kinds = [token.token_type for token in tokens[at : at + 4]]
        is_wrapped = kinds[:2] == [TokenType.TABLE, TokenType.L_PAREN]
        kinds = kinds[2:] if is_wrapped else kinds
        at += 2 * is_wrapped
        if len(kinds) < 2 or kinds[1] != TokenType.L_PAREN:
            return None
        name = tokens[at]
        if name.text.lower() not in _ARGUMENTS:
            return None
        arguments, last = _split(tokens, at + 1)
        words = {each[0].text.upper() for each in arguments if each}
        is_table = bool(words & {"TABLE", "DESCRIPTOR"}) or any(map(_is_named, arguments))
        if not is_table and "INTERVAL" not in words:
            return None
        return cls(query, name, arguments, last + is_wrapped, not is_table)

    def text(self, tokens: Sequence[Token]) -> str:
        """Return the text of some tokens."""
        return self.query[tokens[0].start : tokens[-1].end + 1]


def _split(tokens: Sequence[Token], at: int) -> tuple[list[list[Token]], int]:
    """Return the arguments in the parentheses at this index, and the index of the closing one."""
    arguments, depth = [list[Token]()], 0
    for index in range(at, len(tokens)):
        token = tokens[index]
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0:
            return arguments, index
        if depth == 1 and token.token_type == TokenType.COMMA:
            arguments.append([])
        elif index > at:
            arguments[-1].append(token)
    return arguments, len(tokens) - 1


def _is_named(argument: Sequence[Token]) -> bool:
    return len(argument) > 2 and argument[1].token_type == TokenType.FARROW


def _subquery(call: Call, found: _Found, number: int) -> tuple[str, list[Call]]:
    """Return the subquery for a call, and the call with those within its DATA."""
    given = _arguments(call, found)
    data, keys = _data(call, given["data"])
    call = replace(call, keys=keys)
    source, inner = found.text(data), list[Call]()
    if len(data) > 1:
        within = expanded(source, call.line + data[0].line - found.name.line, number)
        source, inner = within.text, [*within.calls]
    sizes = {
        name: _Interval.of(call, found.text(tokens))
        for name, tokens in given.items()
        if name not in ("data", "timecol")
    }
    size, offset = sizes.get("size") or sizes["gap"], sizes.get("offset")
    slide = sizes.get("slide") or sizes.get("step") or (size if offset else None)
    times = [f"'{each.text}'" for each in (size, slide, offset) if each]
    function = "session_window" if call.function == SESSION else "window"
    time, where = _descriptor(call, found, given["timecol"]), ""
    if call.function == _CUMULATE:
        call = replace(call, starts=_cumulated(call, size, sizes["step"], offset))
        where = f" WHERE {time} >= {call.part('window_start', call.windows)}"
    window = f"{function}({', '.join([time, *times])})"
    columns = ", ".join(f"{call.part(name, call.windows)} AS {name}" for name in PARTS)
    made = f"(SELECT *, {columns} FROM (SELECT *, {window} AS {call.windows} FROM {source}){where})"
    return made, [call, *inner]


def _cumulated(call: Call, size: _Interval, step: _Interval, offset: _Interval | None) -> str:
    """Return the expression of when the window of CUMULATE starts that ends with a window."""
    if step.ms <= 0 or size.ms % step.ms:
        raise call.error(
            f"the size, {size.text}, must be a multiple of the step, {step.text}: the last of the "
            "windows that begin together has the size"
        )
    shift = -1 - (offset.ms if offset else 0)
    return _STARTS_OF_SIZE.format(shift=shift, size=size.ms)


def _arguments(call: Call, found: _Found) -> dict[str, Sequence[Token]]:
    """Return the arguments of a call by their names."""
    names = _ARGUMENTS[call.function]
    given = dict[str, Sequence[Token]]()
    for index, argument in enumerate(found.arguments):
        name = names[index] if index < len(names) else ""
        if _is_named(argument):
            name, argument = argument[0].text.lower(), argument[2:]
        if name not in names or name in given or not argument:
            raise call.error(_how(call.function))
        given[name] = argument
    if set(names) - {"offset"} - set(given):
        raise call.error(_how(call.function))
    return given


def _how(function: str) -> str:
    """Return what the arguments of a function are."""
    shown = {"data": "TABLE input", "timecol": "DESCRIPTOR(timestamp)", "offset": ""}
    if function == SESSION:
        shown["data"] += " PARTITION BY key"
    names = [shown.get(name, name) for name in _ARGUMENTS[function]]
    return (
        f"write {function.upper()}({', '.join(filter(None, names))}), where times are intervals "
        "such as INTERVAL '10' MINUTES"
    )


def _data(call: Call, tokens: Sequence[Token]) -> tuple[Sequence[Token], Sequence[str]]:
    """Return the tokens of the table that a function reads, and the columns of PARTITION BY."""
    if tokens[0].token_type == TokenType.TABLE:
        tokens = tokens[1:]
    kinds = [token.token_type for token in tokens]
    depth, end = 0, len(tokens)
    for index, kind in enumerate(kinds):
        depth += (kind in _OPENING) - (kind in _CLOSING)
        if depth == 0 and kind == TokenType.PARTITION_BY:
            end = index
            break
    by = [token for token in tokens[end + 1 :] if token.token_type not in (*_OPENING, *_CLOSING)]
    keys = [token.text.lower() for token in by if token.token_type != TokenType.COMMA]
    if end == 0 or (keys and call.function != SESSION):
        raise call.error(_how(call.function))
    return tokens[:end], keys


def _descriptor(call: Call, found: _Found, tokens: Sequence[Token]) -> str:
    """Return the column in DESCRIPTOR(…)."""
    if tokens[0].text.upper() != "DESCRIPTOR" or len(tokens) < 4:
        raise call.error(_how(call.function))
    return found.text(tokens[2:-1])


@dataclass(frozen=True, slots=True)
class _Interval:
    """An interval, as `window(…)` takes it."""

    text: str
    ms: int

    @classmethod
    def of(cls, call: Call, text: str) -> _Interval:
        """Read an interval. Raises `QueryError` if that is not possible."""
        found = _INTERVAL.fullmatch(text)
        if found is None:
            raise call.error(
                f"{' '.join(text.split())} cannot be read: write whole numbers of milliseconds to "
                "weeks, such as INTERVAL '10' MINUTES"
            )
        unit = found[2].lower()
        return cls(f"{found[1]} {unit}", int(found[1]) * UNITS_US[unit.removesuffix("s")] // 1000)

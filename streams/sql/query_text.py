"""What the text of a query says about its groups, without Spark.

The JobManager has no Spark, but must know which stores and topics a query needs. So the text is
looked at here: whether it groups records, by which windows, and whether the key is a grouping
column. When Spark has analyzed the query, each task checks that this is so, and refuses the query
if not. A mistake here can therefore not make a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from common.specs import WindowSpec
from streams.sql.spec import QueryError

_INPUT = "input"
_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<raw> [rR](?:'[^']*' | "[^"]*") )
    | (?P<text> '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<quoted> `(?:[^`]|``)*` )
    | (?P<number> \d[\w.]* )
    | (?P<name> [^\W\d]\w* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")
_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+)\s+([a-z]+)\s*")
_AFTER_GROUP_BY = (
    "having", "order", "limit", "union", "intersect", "except", "sort", "cluster",
    "distribute", "offset", "with", "grouping",
)  # fmt: skip
_NOT_AN_ALIAS = (
    "where", "group", "having", "join", "left", "right", "inner", "cross", "full", "semi", "anti",
    "natural", "on", "using", "lateral", "order", "limit", "union", "intersect", "except", "window",
    "sort", "cluster", "distribute", "tablesample", "pivot", "unpivot",
)  # fmt: skip
_HOW = "write its times as text, such as window(timestamp, '1 hour')"


@dataclass(frozen=True, slots=True)
class GroupsText:
    """What GROUP BY says; `has_key` if the key of the records is one of the grouping columns."""

    window: WindowSpec | None
    has_key: bool


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Block:
    """Tokens between two parentheses, without these; a block in it is one item."""

    items: Sequence[_Token | _Block]

    @property
    def names(self) -> set[str]:
        """All names in the block and the blocks in it, in small letters."""
        return {token.text for token in _all_tokens(self) if token.kind == "name"}


def read_groups(query: str) -> GroupsText | None:
    """Return what a query groups its records by; `None` if it does not group them.

    Raises `QueryError` for windows that it cannot read, or that are not possible.
    """
    whole = _blocks(_tokens(query))
    inputs = _inputs(whole)
    grouped = [
        (block, at)
        for block in _all_blocks(whole)
        for at in range(len(block.items) - 1)
        if _is(block.items[at], "group") and _is(block.items[at + 1], "by")
        if block.names & inputs
    ]
    if not grouped:
        return None
    windows = {_window(call) for call in _calls(whole, "window")}
    if any(True for _ in _calls(whole, "session_window")):
        raise QueryError(
            "session_window(…) merges windows as records come: use a session window of the "
            "Python API (type: topology)"
        )
    if len(windows) > 1:
        raise QueryError(
            "the query has two different windows: put one of them into a processor after this one"
        )
    has_key = all(_has_key(block, at + 2) for block, at in grouped)
    return GroupsText(next(iter(windows), None), has_key)


def _tokens(query: str) -> Iterator[_Token]:
    at = 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        assert found is not None, "any character is a token"
        at = found.end()
        match str(found.lastgroup):
            case "space":
                continue
            case "comment":
                at = _end_of_comment(query, at)
            case "name":
                yield _Token("name", found[0].lower())
            case "quoted":
                yield _Token("name", found[0][1:-1].replace("``", "`").lower())
            case "raw":
                yield _Token("text", found[0][2:-1])
            case "text":
                yield _Token("text", found[0][1:-1])
            case kind:
                yield _Token(kind, found[0])


def _end_of_comment(query: str, at: int) -> int:
    """Return where a comment ends that has begun before `at`; comments may be nested."""
    depth = 1
    while depth:
        found = _COMMENT_ENDS.search(query, at)
        if found is None:
            return len(query)
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at


def _blocks(tokens: Iterator[_Token]) -> _Block:
    found: list[_Token | _Block] = []
    for token in tokens:
        if token == _Token("other", ")"):
            break
        found.append(_blocks(tokens) if token == _Token("other", "(") else token)
    return _Block(found)


def _all_blocks(block: _Block) -> Iterator[_Block]:
    yield block
    for item in block.items:
        if isinstance(item, _Block):
            yield from _all_blocks(item)


def _all_tokens(block: _Block) -> Iterator[_Token]:
    for each in _all_blocks(block):
        yield from (item for item in each.items if isinstance(item, _Token))


def _is(item: _Token | _Block, name: str) -> bool:
    return item == _Token("name", name)


def _inputs(whole: _Block) -> set[str]:
    """Return `input`, and the names of the WITH queries that read it, directly or not."""
    named: list[tuple[str, _Block]] = []
    for items in (block.items for block in _all_blocks(whole)):
        for at, (item, after) in enumerate(pairwise(items)):
            if _is(item, "as") and isinstance(after, _Block):
                # A list of columns may come between the name and AS.
                names = [each.text for each in items[max(0, at - 2) : at] if type(each) is _Token]
                named += [(name, after) for name in names[-1:]]
    found = {_INPUT}
    for _ in named:
        found |= {name for name, block in named if block.names & found}
    return found


def _calls(whole: _Block, function: str) -> Iterator[_Block]:
    """Yield the arguments of the calls of a function."""
    for block in _all_blocks(whole):
        for item, after in pairwise(block.items):
            if _is(item, function) and isinstance(after, _Block):
                yield after


def _parts(items: Sequence[_Token | _Block]) -> list[list[_Token | _Block]]:
    """Return the parts between commas."""
    parts: list[list[_Token | _Block]] = [[]]
    for item in items:
        if item == _Token("other", ","):
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _window(call: _Block) -> WindowSpec:
    _, *times = _parts(call.items)
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


def _milliseconds(argument: list[_Token | _Block]) -> int:
    match argument:
        case [_Token("text", text)]:
            found = _microseconds(text)
        case [_Token("number", digits)] if digits.isdigit():
            found = int(digits)
        case _:
            found = None
    if found is None:
        raise QueryError(f"the times of window(…) cannot be read: {_HOW}")
    if found % 1000:
        raise QueryError("the times of window(…) must be whole milliseconds")
    return found // 1000


def _microseconds(text: str) -> int | None:
    text, total = text.strip().lower().removeprefix("interval "), 0
    while text:
        found = _PART.match(text)
        unit = found[2].removesuffix("s") if found else ""
        if found is None or unit not in _UNITS_US:
            return None
        total += int(found[1]) * _UNITS_US[unit]
        text = text[found.end() :]
    return total


def _has_key(block: _Block, start: int) -> bool:
    """Whether the grouping columns, from an item on, include the key of the records."""
    items = list(block.items[start:])
    end = next((at for at, item in enumerate(items) if _ends_groups(item)), len(items))
    if any(_is(item, name) for item in items[end:] for name in ("cube", "rollup", "sets")):
        return False
    views = {_INPUT, *_aliases(block)}
    for part in _parts(items[:end]):
        match part:
            case [_Token("name", "key")]:
                return True
            case [_Token("name", view), _Token("other", "."), _Token("name", "key")]:
                if view in views:
                    return True
    return False


def _ends_groups(item: _Token | _Block) -> bool:
    return isinstance(item, _Token) and item.kind == "name" and item.text in _AFTER_GROUP_BY


def _aliases(block: _Block) -> Iterator[str]:
    """Yield the other names that a block gives to `input`."""
    items = [item for item in block.items if not _is(item, "as")]
    for item, after in pairwise(items):
        if not _is(item, _INPUT) or not isinstance(after, _Token) or after.kind != "name":
            continue
        if after.text not in _NOT_AN_ALIAS:
            yield after.text

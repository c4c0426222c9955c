"""YAML values with their lines and columns, so that messages can point to every mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import yaml
from yaml.constructor import SafeConstructor

from kafka_pipeline.common.errors import ConfigError, Problem
from kafka_pipeline.common.security.secret_names import is_secret

_SCALAR_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}
_MERGE = "tag:yaml.org,2002:merge"
_SHOWN_CHARACTERS = 40
_MOST_VALUES = 100_000
_MOST_BYTES = 4_000_000
_MOST_LEVELS = 40
"""Fewer levels than a control record may have, where parts of the file are nested deeper."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_AS_IT_LOOKS = re.compile(r"(?i:yes|no|on|off)|[-+]?0[0-7_]+|.*:.*")
"""Truth values, octal numbers and numbers to the base 60 that YAML 1.2 does not have."""
_QUOTED = re.compile(r"(alias|anchor|tag handle) (?:'.*?'|\".*?\")")
"""What PyYAML quotes of a value that begins with `*`, `&` or `!`, such as a password."""


class Located(Protocol):
    """Anything with a place in a file; both numbers count from 1."""

    @property
    def line(self) -> int:
        """Line, from 1."""

    @property
    def column(self) -> int:
        """Column in characters, from 1."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value; `text` is the value as written in the file, without quotes.

    `expanded_from` is that text if it had a `${VAR}`, which is replaced in `value`.
    """

    line: int
    column: int
    value: str | int | float | bool | None
    text: str
    expanded_from: str | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """A YAML list."""

    line: int
    column: int
    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """One key of a map and its value."""

    key: str
    at: Scalar
    value: Value


@dataclass(frozen=True, slots=True)
class Map:
    """A YAML map with string keys, in file order, each key once."""

    line: int
    column: int
    pairs: tuple[Pair, ...]


Value = Scalar | Items | Map


class Problems:
    """Collects the mistakes in one file, to report all at once."""

    def __init__(self, file: Path) -> None:
        self._file = str(file)
        self._found: list[Problem] = []

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return Path(self._file).parent

    def add(self, at: Located, message: str) -> None:
        """Add a mistake at the place of `at`."""
        problem = Problem(self._file, at.line, at.column, message)
        if problem not in self._found:
            self._found.append(problem)

    def found_at(self, at: Located) -> bool:
        """Whether a mistake was already found there: the value is then meaningless."""
        return any((p.line, p.column) == (at.line, at.column) for p in self._found)

    def raise_if_any(self) -> None:
        """Raise a ConfigError with everything found so far, top to bottom."""
        if self._found:
            raise ConfigError(sorted(self._found, key=lambda p: (p.line, p.column)))


@dataclass(frozen=True, slots=True)
class Place:
    """A place without a value."""

    line: int
    column: int


def read_yaml(path: Path, problems: Problems) -> Value:
    """Return the one document in a file.

    If a key is given twice, the first one counts, and the other is a problem. Raises ConfigError if
    nothing can be read: the file is unreadable, empty, not UTF-8 or not YAML.
    """
    try:
        value = _Converter(problems).value(_compose(path))
        if _count(value, {}) > _MOST_VALUES:
            raise _Unreadable(f"has aliases (*) that expand to more than {_MOST_VALUES:,} values")
        if _levels(value, {}) > _MOST_LEVELS:
            raise _Unreadable(f"is nested too deeply, more than {_MOST_LEVELS} levels")
        return value
    except _Unreadable as error:
        problem = error
    except RecursionError:
        problem = _Unreadable("is nested too deeply")
    problems.add(problem.place, str(problem))
    problems.raise_if_any()
    raise problem


def describe(value: Value, key: str = "") -> str:
    """Return a description of a value, for the "got …" of a message.

    Without the value itself if it comes from a variable or a file with a secret, judging by its
    name, or if the `key` is that of a secret, and the value is a number.
    """
    match value:
        case Items():
            return "a list"
        case Map():
            return "a map"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return f"the truth value {value.text}"
        case Scalar(value=str(text)):
            source = value.expanded_from or ""
            shown = "" if is_secret(source) else f' "{_shortened(text)}"'
            origin = f" from {source}" if source else ""
            return f"the text{shown}{origin}"
        case Scalar():
            return "a number" if is_secret(key) else f"the number {_shortened(value.text)}"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def plain(value: Value | None) -> Any:
    """Return a value as a plain Python object, or None for a missing one."""
    match value:
        case None:
            return None
        case Scalar():
            return value.value
        case Items():
            return [plain(item) for item in value.items]
        case Map():
            return {pair.key: plain(pair.value) for pair in value.pairs}


def checked_plain(value: Value | None, problems: Problems) -> Any:
    """Return `plain(value)` of a value that nobody else checks.

    What YAML reads as something else than it looks is a problem, such as the country `no` (false),
    the code `0123` (83) and the time `12:30` (750).
    """
    if value is not None:
        _check_readings(value, problems)
    return plain(value)


def _check_readings(value: Value, problems: Problems) -> None:
    if isinstance(value, Scalar):
        is_text = isinstance(value.value, str)
        if not is_text and _NOT_AS_IT_LOOKS.fullmatch(value.text):
            read = json.dumps(value.value)
            problems.add(value, f'YAML reads "{value.text}" as {read}: write that, or use quotes')
    for each in _inside(value):
        _check_readings(each, problems)


def unique_pairs(pairs: Iterable[Pair], problems: Problems) -> tuple[Pair, ...]:
    """Return the first pair of each key; every later one is a problem."""
    first: dict[str, Pair] = {}
    for pair in pairs:
        earlier = first.setdefault(pair.key, pair)
        if earlier is not pair:
            problems.add(
                pair.at, f'key "{pair.key}" is given twice (first at line {earlier.at.line})'
            )
    return tuple(first.values())


def _count(value: Value, counted: dict[int, int]) -> int:
    """Return the number of values; the values of an alias count again each time."""
    if id(value) not in counted:
        counted[id(value)] = 1 + sum(_count(each, counted) for each in _inside(value))
    return counted[id(value)]


def _levels(value: Value, known: dict[int, int]) -> int:
    """Return the depth of nesting of a value, including its aliases."""
    if id(value) not in known:
        known[id(value)] = 1 + max((_levels(each, known) for each in _inside(value)), default=0)
    return known[id(value)]


def _inside(value: Value) -> Iterable[Value]:
    match value:
        case Items():
            return value.items
        case Map():
            return (pair.value for pair in value.pairs)
        case Scalar():
            return ()


class _Unreadable(Exception):
    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.place = place or Place(1, 1)


def _compose(path: Path) -> yaml.Node:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise _Unreadable(f"is larger than {_MOST_BYTES:,} bytes")
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise _Unreadable("there is no such file") from None
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _Unreadable(f"is not UTF-8 (byte {error.start + 1}): save it as UTF-8") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _Unreadable(*_syntax_error(error)) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        character = f"U+{ord(text[error.position]):04X}"
        raise _Unreadable(f"has the character {character}, not allowed in YAML", place) from error
    except (ValueError, OverflowError) as error:
        raise _Unreadable("has an escape (\\U…) that is not a character") from error
    if node is None:
        raise _Unreadable("is empty")
    return node


def _syntax_error(error: yaml.MarkedYAMLError) -> tuple[str, Place]:
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
    parts = ", ".join(part for part in (error.context, error.problem) if part)
    words = _QUOTED.sub(r"\1", parts)
    return f"is not valid YAML: {words}", place


class _Converter:
    """Converts nodes to values; a node with several aliases is converted once."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._done: dict[yaml.Node, Value | None] = {}

    def value(self, node: yaml.Node) -> Value:
        if node not in self._done:
            self._done[node] = None
            self._done[node] = self._convert(node)
        value = self._done[node]
        if value is None:
            value = self._nothing(node)
            self._problems.add(value, "an alias (*) is inside what it names")
        return value

    def _convert(self, node: yaml.Node) -> Value:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        if isinstance(node, yaml.SequenceNode):
            return Items(line, column, tuple(self.value(item) for item in node.value))
        if isinstance(node, yaml.MappingNode):
            pairs: list[Pair] = []
            merged: dict[str, Pair] = {}
            for key, value in node.value:
                if key.tag == _MERGE:
                    for pair in self._merged(key, value):
                        merged.setdefault(pair.key, pair)
                elif (own := self._pair(key, value)) is not None:
                    pairs.append(own)
            found = unique_pairs(pairs, self._problems)
            for pair in found:
                merged.pop(pair.key, None)
            return Map(line, column, (*found, *merged.values()))
        return self._scalar(node)

    def _merged(self, key: yaml.Node, value: yaml.Node) -> Iterable[Pair]:
        """Yield the pairs of `<<: *map` or `<<: [*map, *other]`, by descending precedence."""
        given = self.value(value)
        for each in given.items if isinstance(given, Items) else (given,):
            if isinstance(each, Map):
                yield from each.pairs
            else:
                at = self._nothing(key)
                self._problems.add(
                    at, f"<< takes the keys of a map, or of a list of maps, got {describe(each)}"
                )

    def _pair(self, key: yaml.Node, value: yaml.Node) -> Pair | None:
        at = self.value(key)
        if isinstance(at, Scalar) and isinstance(at.value, str):
            return Pair(at.value, at, self.value(value))
        self._problems.add(at, f"a key must be text, got {describe(at)}: put it in quotes")
        return None

    def _scalar(self, node: yaml.Node) -> Scalar:
        text = replace(self._nothing(node), value=node.value, text=node.value)
        if _SURROGATE.search(node.value):
            self._problems.add(text, "has an escape (\\u…) that is not a character")
            return text
        if node.tag not in _SCALAR_TAGS:
            self._problems.add(text, "YAML reads this in its own way: put it in quotes")
            return text
        try:
            return replace(text, value=SafeConstructor().construct_object(node))
        except (ValueError, LookupError):
            kind = node.tag.rpartition(":")[2]
            self._problems.add(text, f"this cannot be read as a YAML {kind}")
            return text

    @staticmethod
    def _nothing(node: yaml.Node) -> Scalar:
        return Scalar(node.start_mark.line + 1, node.start_mark.column + 1, None, "")

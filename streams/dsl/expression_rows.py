"""Computes column expressions record by record, in Python; this defines their results."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from kafka_pipeline.common.clock import EPOCH, MILLISECOND, ms_of
from kafka_pipeline.common.suggest import a_type
from kafka_pipeline.streams.dsl.expressions import (
    Call,
    Case,
    Coalesce,
    Expression,
    Field,
    Key,
    Literal,
    Logic,
    Struct,
    Timestamp,
    Value,
)
from kafka_pipeline.streams.errors import StreamsError

RowFunction = Callable[[Any, Any, Any], Any]
"""A function of the key, the value and the timestamp of a record."""

_NUMBERS = frozenset((int, float))
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


class UnfitError(Exception):
    """A function got values that it does not take; the message has only their types."""


def row_function(expression: Expression) -> RowFunction:
    """Return a function that computes an expression; it raises `StreamsError`."""
    match expression:
        case Key():
            return lambda key, value, timestamp: key
        case Value():
            return lambda key, value, timestamp: value
        case Timestamp():
            return lambda key, value, timestamp: timestamp
        case Literal(constant):
            return lambda key, value, timestamp: constant
        case Field():
            return _field(expression)
        case Call("is_null", (argument,), _):
            given = row_function(argument)
            return lambda key, value, timestamp: given(key, value, timestamp) is None
        case Call("is_not_null", (argument,), _):
            given = row_function(argument)
            return lambda key, value, timestamp: given(key, value, timestamp) is not None
        case Call(_, (_,), _):
            return _unary(expression)
        case Call():
            return _binary(expression)
        case Logic():
            return _logic(expression)
        case Coalesce():
            return _coalesce(expression)
        case Case():
            return _case(expression)
        case Struct(fields):
            each = [(name, row_function(field)) for name, field in fields]
            return lambda key, value, timestamp: {
                name: field(key, value, timestamp) for name, field in each
            }
    raise AssertionError(f"a kind of expression that is not known: {expression!r}")


def scalar_function(call: Call) -> Callable[..., Any]:
    """Return the function of a call, which takes values that are not null."""
    function = FUNCTIONS[call.function]
    return partial(function, *call.parameters) if call.parameters else function


def _field(field: Field) -> RowFunction:
    parent, name = row_function(field.parent), field.name

    def of_value(key: Any, value: Any, timestamp: Any) -> Any:
        return value.get(name) if value.__class__ is dict else run(key, value, timestamp)

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        found = parent(key, value, timestamp)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise StreamsError(f"{field!r}: {field.parent!r} is {a_type(found)}, not a dict")
        return found.get(name)

    return of_value if isinstance(field.parent, Value) else run


def _unary(call: Call) -> RowFunction:
    argument, function = row_function(call.arguments[0]), scalar_function(call)

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        found = argument(key, value, timestamp)
        if found is None:
            return None
        try:
            return function(found)
        except (UnfitError, ArithmeticError, ValueError) as error:
            raise StreamsError(f"{call!r}: {_words(error)}") from error

    return run


def _binary(call: Call) -> RowFunction:
    left, right = map(row_function, call.arguments)
    function = scalar_function(call)

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        a = left(key, value, timestamp)
        if a is None:
            return None
        b = right(key, value, timestamp)
        if b is None:
            return None
        try:
            return function(a, b)
        except (UnfitError, ArithmeticError) as error:
            raise StreamsError(f"{call!r}: {_words(error)}") from error

    return run


def _logic(logic: Logic) -> RowFunction:
    left, right = row_function(logic.left), row_function(logic.right)
    decides = logic.operator == "|"

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        a = left(key, value, timestamp)
        if a is decides:
            return a
        b = right(key, value, timestamp)
        for given in (a, b):
            if given is not None and given.__class__ is not bool:
                raise StreamsError(f"{logic!r}: {logic.operator} takes bools, not {a_type(given)}")
        if b is decides:
            return b
        return None if a is None or b is None else not decides

    return run


def _coalesce(coalesce: Coalesce) -> RowFunction:
    choices = [row_function(each) for each in coalesce.choices]

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        for choice in choices:
            found = choice(key, value, timestamp)
            if found is not None:
                return found
        return None

    return run


def _case(case: Case) -> RowFunction:
    branches = [
        (condition, predicate(condition), row_function(then)) for condition, then in case.branches
    ]
    default = row_function(case.default)

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        for _, holds, then in branches:
            if holds(key, value, timestamp):
                return then(key, value, timestamp)
        return default(key, value, timestamp)

    return run


def predicate(condition: Expression) -> RowFunction:
    """Return a function that computes a condition: a bool, or null."""
    function = row_function(condition)

    def run(key: Any, value: Any, timestamp: Any) -> Any:
        found = function(key, value, timestamp)
        if found is not None and found.__class__ is not bool:
            raise StreamsError(
                f"{condition!r} is {a_type(found)}, not a bool: compare it to something"
            )
        return found

    return run


# Functions of values that are not null


def _words(error: Exception) -> str:
    if isinstance(error, ZeroDivisionError):
        return "division by zero"
    if isinstance(error, OverflowError):
        return "a number that is too large for a float"
    return str(error)


def _arithmetic(
    name: str, function: Callable[[Any, Any], Any], takes_text: bool = False
) -> Callable[[Any, Any], Any]:
    takes = "two numbers or two strings" if takes_text else "two numbers"

    def run(a: Any, b: Any) -> Any:
        if type(a) in _NUMBERS and type(b) in _NUMBERS:
            return function(a, b)
        if takes_text and type(a) is type(b) is str:
            return function(a, b)
        raise UnfitError(f"{name} takes {takes}, not {a_type(a)} and {a_type(b)}")

    return run


def _ordering(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        kind = type(a)
        if kind in _NUMBERS and type(b) in _NUMBERS:
            return function(a, b)
        if kind is type(b) and kind in (str, bytes):
            return function(a, b)
        raise UnfitError(
            f"{name} takes two numbers, two strings or two bytes, not {a_type(a)} and {a_type(b)}"
        )

    return run


def _of(takes: str, kinds: frozenset[type], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose last argument is of one of `kinds`."""

    def run(*arguments: Any) -> Any:
        if type(arguments[-1]) not in kinds:
            raise UnfitError(f"this takes {takes}, not {a_type(arguments[-1])}")
        return function(*arguments)

    return run


_of_text = partial(_of, "a string", frozenset((str,)))
_of_number = partial(_of, "a number", _NUMBERS)
_of_time = partial(_of, "a time in whole milliseconds", frozenset((int,)))
_of_bool = partial(_of, "a bool", frozenset((bool,)))
_of_number_or_text = partial(_of, "a number or a string", frozenset((int, float, str)))


def _to_int(given: float | str) -> int:
    if isinstance(given, str):
        if not _INTEGER.fullmatch(given):
            raise UnfitError("the string is not a whole number")
        return int(given)
    if isinstance(given, float) and not math.isfinite(given):
        raise UnfitError("NaN and infinities are not whole numbers")
    return int(given)


def _to_float(given: float | str) -> float:
    if isinstance(given, str) and not _FLOAT.fullmatch(given):
        raise UnfitError("the string is not a decimal number")
    return float(given)


def _datetime(time_ms: int) -> datetime:
    try:
        return EPOCH + time_ms * MILLISECOND
    except OverflowError:
        raise UnfitError("the time is not in the years 1 to 9999") from None


def _of_clock(attribute: str) -> Callable[[int], int]:
    get = operator.attrgetter(attribute)
    return _of_time(lambda time_ms: get(_datetime(time_ms)))


def _to_datetime(text: str) -> int:
    try:
        return ms_of(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise UnfitError("the string is not a time of ISO 8601") from None


def _time_string(time_ms: int) -> str:
    return _datetime(time_ms).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _round(decimals: int, number: float) -> float:
    return round(number, decimals)


def _slice(offset: int, length: int | None, text: str) -> str:
    if length is None:
        return text[offset:]
    if offset >= 0:
        return text[offset : offset + length]
    start = offset + len(text)
    return text[max(start, 0) : max(start + length, 0)]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": _arithmetic("+", operator.add, takes_text=True),
    "-": _arithmetic("-", operator.sub),
    "*": _arithmetic("*", operator.mul),
    "/": _arithmetic("/", operator.truediv),
    "//": _arithmetic("//", operator.floordiv),
    "%": _arithmetic("%", operator.mod),
    "==": operator.eq,
    "!=": operator.ne,
    "<": _ordering("<", operator.lt),
    "<=": _ordering("<=", operator.le),
    ">": _ordering(">", operator.gt),
    ">=": _ordering(">=", operator.ge),
    "negate": _of_number(operator.neg),
    "abs": _of_number(abs),
    "not": _of_bool(operator.not_),
    "is_in": lambda values, given: any(given == each for each in values),
    "round": _of_number(_round),
    "cast_int": _of_number_or_text(_to_int),
    "cast_float": _of_number_or_text(_to_float),
    "cast_str": _of_number_or_text(str),
    "str.to_uppercase": _of_text(str.upper),
    "str.to_lowercase": _of_text(str.lower),
    "str.strip_chars": _of_text(str.strip),
    "str.len_chars": _of_text(len),
    "str.starts_with": _of_text(lambda prefix, text: text.startswith(prefix)),
    "str.ends_with": _of_text(lambda suffix, text: text.endswith(suffix)),
    "str.contains": _of_text(lambda pattern, text: re.search(pattern, text) is not None),
    "str.contains_literal": _of_text(lambda part, text: part in text),
    "str.replace_all": _of_text(re.sub),
    "str.replace_all_literal": _of_text(lambda old, new, text: text.replace(old, new)),
    "str.slice": _of_text(_slice),
    "str.to_datetime": _of_text(_to_datetime),
    "dt.year": _of_clock("year"),
    "dt.month": _of_clock("month"),
    "dt.day": _of_clock("day"),
    "dt.weekday": _of_time(lambda time_ms: _datetime(time_ms).isoweekday()),
    "dt.hour": _of_clock("hour"),
    "dt.minute": _of_clock("minute"),
    "dt.second": _of_clock("second"),
    "dt.truncate": _of_time(lambda every_ms, time_ms: time_ms // every_ms * every_ms),
    "dt.to_string": _of_time(_time_string),
}

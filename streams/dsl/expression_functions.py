"""The methods of column expressions, by the names that they have in Polars.

Those of strings are in the namespace `str`, and those of times in `dt`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeAlias, TypeVar

from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.errors import InvalidArgumentError

E = TypeVar("E")
Scalar: TypeAlias = bool | int | float | str | bytes
Castable: TypeAlias = type[int] | type[float] | type[str]


_CASTS: dict[object, str] = {int: "cast_int", float: "cast_float", str: "cast_str"}
"""For each type that `cast` takes, the function."""


class StringFunctions(Generic[E]):
    """The functions of a string, and the times that strings are."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., E]) -> None:
        self._call = call

    def to_uppercase(self) -> E:
        """The string in upper case, as Python's `str.upper`."""
        return self._call("str.to_uppercase")

    def to_lowercase(self) -> E:
        """The string in lower case, as Python's `str.lower`."""
        return self._call("str.to_lowercase")

    def strip_chars(self) -> E:
        """The string without white space at both ends, as Python's `str.strip`."""
        return self._call("str.strip_chars")

    def len_chars(self) -> E:
        """The number of characters."""
        return self._call("str.len_chars")

    def starts_with(self, prefix: str) -> E:
        """Whether the string begins with `prefix`."""
        return self._call("str.starts_with", _text("str.starts_with", prefix))

    def ends_with(self, suffix: str) -> E:
        """Whether the string ends with `suffix`."""
        return self._call("str.ends_with", _text("str.ends_with", suffix))

    def contains(self, pattern: str, *, literal: bool = False) -> E:
        """Whether `pattern`, a regular expression of Python, is found anywhere in the string.

        If it is `literal`, these very characters are looked for.
        """
        if _is_literal("str.contains", pattern, literal):
            return self._call("str.contains_literal", pattern)
        return self._call("str.contains", pattern)

    def replace_all(self, pattern: str, value: str, *, literal: bool = False) -> E:
        r"""The string with `value` for each match of `pattern`, a regular expression of Python.

        As in Python's `re.sub`, `value` may have groups of the match, such as `\1`. If `literal`,
        it replaces these very characters, of which there is at least one.
        """
        is_literal = _is_literal("str.replace_all", pattern, literal)
        _text("str.replace_all", value)
        if not is_literal:
            try:
                re.compile(pattern).sub(value, "")
            except (re.error, IndexError) as error:
                raise InvalidArgumentError(
                    f"str.replace_all: {value!r} does not fit {pattern!r}: {error}"
                ) from None
            return self._call("str.replace_all", pattern, value)
        if pattern == "":
            raise InvalidArgumentError(
                "str.replace_all takes a string to replace that is not empty"
            )
        return self._call("str.replace_all_literal", pattern, value)

    def slice(self, offset: int, length: int | None = None) -> E:
        """The `length` characters from `offset` on, or all of them without a length.

        An `offset` below 0 counts from the end. What is outside the string is left out.
        """
        if type(offset) is not int:
            raise InvalidArgumentError(
                f"str.slice takes an offset that is a whole number, not {offset!r}"
            )
        if length is not None and (type(length) is not int or length < 0):
            raise InvalidArgumentError(
                f"str.slice takes a length that is a whole number, 0 or more, not {length!r}"
            )
        return self._call("str.slice", offset, length)

    def to_datetime(self) -> E:
        """The time in ms that a string of ISO 8601 is, as "2013-01-01T05:00:00+01:00".

        Without an offset, it is in UTC. Fractions of a millisecond are cut off. Any other string
        rejects the record.
        """
        return self._call("str.to_datetime")


class TimeFunctions(Generic[E]):
    """The functions of a time, which is whole milliseconds since the epoch; they are in UTC.

    All but `truncate` reject the record of a time outside the years 1 to 9999.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., E]) -> None:
        self._call = call

    def year(self) -> E:
        """The year."""
        return self._call("dt.year")

    def month(self) -> E:
        """The month, 1 to 12."""
        return self._call("dt.month")

    def day(self) -> E:
        """The day of the month, 1 to 31."""
        return self._call("dt.day")

    def weekday(self) -> E:
        """The day of the week, 1 for Monday to 7 (ISO 8601)."""
        return self._call("dt.weekday")

    def hour(self) -> E:
        """The hour, 0 to 23."""
        return self._call("dt.hour")

    def minute(self) -> E:
        """The minute, 0 to 59."""
        return self._call("dt.minute")

    def second(self) -> E:
        """The second, 0 to 59."""
        return self._call("dt.second")

    def truncate(self, every_ms: Milliseconds) -> E:
        """The last multiple of `every_ms`, 1 or more, that is not after the time."""
        return self._call("dt.truncate", whole_ms("dt.truncate", "every_ms", every_ms, 1))

    def to_string(self) -> E:
        """The time as a string, "2013-01-01T05:00:00.000Z"."""
        return self._call("dt.to_string")


class Functions(Generic[E]):
    """The functions of one expression, which return expressions of the type `E`.

    They give null for null, except where they say otherwise.

    A value of a type that the function does not take rejects the record.
    """

    __slots__ = ()

    def _call(self, function: builtins.str, *parameters: Any) -> E:
        raise NotImplementedError

    def is_null(self) -> E:
        """Whether it is null; never null itself."""
        return self._call("is_null")

    def is_not_null(self) -> E:
        """Whether it is not null; never null itself."""
        return self._call("is_not_null")

    def is_in(self, values: Collection[Scalar]) -> E:
        """Whether it equals one of `values`, as `==` does."""
        if isinstance(values, str | bytes) or not isinstance(values, Collection):
            raise InvalidArgumentError(f"is_in takes a list of values, not {values!r}")
        for each in values:
            if type(each) not in (bool, int, float, str, bytes) or each != each:
                raise InvalidArgumentError(
                    f"is_in takes bools, numbers, strings and bytes, not {each!r}; for null, use "
                    "is_null()"
                )
        return self._call("is_in", tuple(values))

    def round(self, decimals: int = 0) -> E:
        """The number rounded as Python's `round`; an int stays an int, a float a float."""
        if type(decimals) is not int:
            raise InvalidArgumentError(f"round takes a whole number of decimals, not {decimals!r}")
        return self._call("round", decimals)

    def cast(self, dtype: Castable) -> E:
        """The number or string as an `int`, a `float` or a `str`.

        `int` gives the whole number that a string is in decimal, and a float without its fraction.
        `float` gives the float that a number is nearest to, or that a string is in decimal. `str`
        gives a number as Python writes it. Any other string rejects the record; so do NaN and the
        infinities for `int`, and an int that no float is near to for `float`.
        """
        function = _CASTS.get(dtype)
        if function is None:
            raise InvalidArgumentError(f"cast takes int, float or str, not {dtype!r}")
        return self._call(function)

    @property
    def str(self) -> StringFunctions[E]:
        """The functions of strings."""
        return StringFunctions(self._call)

    @property
    def dt(self) -> TimeFunctions[E]:
        """The functions of times, which are whole milliseconds since the epoch."""
        return TimeFunctions(self._call)


def _text(function: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidArgumentError(f"{function} takes a string, not {given!r}")
    return given


def _is_literal(function: str, pattern: str, literal: bool) -> bool:
    """Return whether a pattern is `literal`; refuse one that is not a regular expression."""
    _text(function, pattern)
    if not isinstance(literal, bool):
        raise InvalidArgumentError(f"{function} takes literal=True or False, not {literal!r}")
    if not literal:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgumentError(
                f"{function}({pattern!r}): not a regular expression: {error}; for these very "
                "characters, give literal=True"
            ) from None
    return literal

"""The methods of column expressions: nulls, sets, strings, conversions, times."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Generic, TypeVar

from kafka_pipeline.streams.errors import InvalidArgumentError

E = TypeVar("E")


class Functions(Generic[E]):
    """The functions of one expression, which return expressions of the type `E`.

    They give null for null, except where they say otherwise.

    A value of a type that the function does not take rejects the record.
    """

    __slots__ = ()

    def _call(self, function: str, *parameters: Any) -> E:
        raise NotImplementedError

    # Nulls and sets

    def is_null(self) -> E:
        """Whether it is null; never null itself."""
        return self._call("is_null")

    def is_not_null(self) -> E:
        """Whether it is not null; never null itself."""
        return self._call("is_not_null")

    def in_(self, values: Collection[bool | int | float | str | bytes]) -> E:
        """Whether it equals one of `values`, as `==` does."""
        if isinstance(values, str | bytes) or not isinstance(values, Collection):
            raise InvalidArgumentError(f"in_ takes a list of values, not {values!r}")
        for each in values:
            if type(each) not in (bool, int, float, str, bytes) or each != each:
                raise InvalidArgumentError(
                    f"in_ takes bools, numbers, strings and bytes, not {each!r}; for null, use "
                    "is_null()"
                )
        return self._call("in_", tuple(values))

    # Strings

    def upper(self) -> E:
        """The string in upper case, as Python's `str.upper`."""
        return self._call("upper")

    def lower(self) -> E:
        """The string in lower case, as Python's `str.lower`."""
        return self._call("lower")

    def strip(self) -> E:
        """The string without white space at both ends, as Python's `str.strip`."""
        return self._call("strip")

    def length(self) -> E:
        """The number of characters of a string."""
        return self._call("length")

    def starts_with(self, start: str) -> E:
        """Whether a string begins with `start`."""
        return self._call("starts_with", _text("starts_with", start))

    def ends_with(self, end: str) -> E:
        """Whether a string ends with `end`."""
        return self._call("ends_with", _text("ends_with", end))

    def contains(self, part: str) -> E:
        """Whether `part` is in a string."""
        return self._call("contains", _text("contains", part))

    def replace(self, old: str, new: str) -> E:
        """The string with `new` for each `old`, which is not empty."""
        if _text("replace", old) == "":
            raise InvalidArgumentError("replace takes a string to replace that is not empty")
        return self._call("replace", old, _text("replace", new))

    def slice(self, start: int, stop: int | None = None) -> E:
        """The characters from `start` to before `stop`, as Python's `text[start:stop]`."""
        for each in (start, stop):
            if each is not None and type(each) is not int:
                raise InvalidArgumentError(f"slice takes whole numbers, not {each!r}")
        return self._call("slice", start, stop)

    def matches(self, pattern: str) -> E:
        """Whether a regular expression of Python is found anywhere in a string."""
        try:
            re.compile(_text("matches", pattern))
        except re.error as error:
            raise InvalidArgumentError(
                f"matches({pattern!r}): not a regular expression: {error}"
            ) from None
        return self._call("matches", pattern)

    # Numbers and conversions

    def round(self, digits: int = 0) -> E:
        """The number rounded as Python's `round`; an int stays an int, a float a float."""
        if type(digits) is not int:
            raise InvalidArgumentError(f"round takes a whole number of digits, not {digits!r}")
        return self._call("round", digits)

    def to_int(self) -> E:
        """The whole number that a string is in decimal; a float without its fraction.

        Any other string, NaN and the infinities reject the record.
        """
        return self._call("to_int")

    def to_float(self) -> E:
        """The float that a number is nearest to, or that a string is in decimal.

        Any other string rejects the record; so does an int that no float is near to.
        """
        return self._call("to_float")

    def to_string(self) -> E:
        """The number as Python's `str` writes it; a string as it is."""
        return self._call("to_string")

    # Times, which are whole milliseconds since the epoch

    def year(self) -> E:
        """The year of a time in ms, in UTC. Times outside the years 1 to 9999 reject the record."""
        return self._call("year")

    def month(self) -> E:
        """The month of a time in ms, 1 to 12, in UTC; see `year`."""
        return self._call("month")

    def day(self) -> E:
        """The day of the month of a time in ms, 1 to 31, in UTC; see `year`."""
        return self._call("day")

    def weekday(self) -> E:
        """The day of the week of a time in ms, 0 for Monday to 6, in UTC; see `year`."""
        return self._call("weekday")

    def hour(self) -> E:
        """The hour of a time in ms, 0 to 23, in UTC; see `year`."""
        return self._call("hour")

    def minute(self) -> E:
        """The minute of a time in ms, 0 to 59; see `year`."""
        return self._call("minute")

    def second(self) -> E:
        """The second of a time in ms, 0 to 59; see `year`."""
        return self._call("second")

    def truncate(self, unit_ms: int) -> E:
        """The last multiple of `unit_ms` that is not after a time in ms; 3_600_000 for hours."""
        if type(unit_ms) is not int or unit_ms < 1:
            raise InvalidArgumentError(
                f"truncate takes a number of milliseconds, 1 or more, not {unit_ms!r}"
            )
        return self._call("truncate", unit_ms)

    def parse_time(self) -> E:
        """The time in ms that a string of ISO 8601 is, as "2013-01-01T05:00:00+01:00".

        Without an offset, it is in UTC. Fractions of a millisecond are cut off. Any other string
        rejects the record.
        """
        return self._call("parse_time")

    def format_time(self) -> E:
        """The time in ms as a string, "2013-01-01T05:00:00.000Z", in UTC; see `year`."""
        return self._call("format_time")


def _text(function: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidArgumentError(f"{function} takes a string, not {given!r}")
    return given

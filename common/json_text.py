"""JSON that reads back as the value that was written.

`json.dumps` turns names that are numbers, true, false or null into text, so `{7: 1}` comes back as
`{"7": 1}`, and `{7: 1, "7": 2}` has one name twice. It cannot write a `Decimal` at all.
"""

from __future__ import annotations

import json
import re
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    DecimalException,
    Inexact,
    InvalidOperation,
)
from itertools import chain, zip_longest
from json import JSONDecoder
from math import isinf
from typing import Any, NoReturn
from uuid import uuid4

# Begins with a literal, which `re` finds fast; the first assertion sorts most names out.
_like_a_coerced_name = re.compile(
    r'":(?<=[0-9el]":)(?:(?<=[0-9]":)|(?<="true":)|(?<="false":)|(?<="null":))'
).search
_are_plain = frozenset((str, int, float, bool, type(None))).issuperset
_are_strings = frozenset((str,)).issuperset
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
_NUMBER = f"number {uuid4().hex}"
"""Takes the place of a `Decimal` while the rest is written: no text of a record is like it."""


def coerced_names(value: Any, text: str) -> list[Any]:
    """Return the names in a value that are not strings, which `json` has written as `text`.

    The value is only looked through if a name in the text may come from anything but a string.
    """
    names: list[Any] = []
    if _like_a_coerced_name(text) is None:
        return names
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if not _are_strings(map(type, item)):
                names += [name for name in item if not isinstance(name, str)]
            item = item.values()
        if not _are_plain(map(type, item)):
            waiting += [each for each in item if isinstance(each, dict | list | tuple)]
    return names


def dumps(value: Any, **options: Any) -> str:
    """Return the text that `json.dumps` makes of a value, with each `Decimal` digit by digit.

    Raises as `json.dumps` does, and `ValueError` for a `Decimal` that is not finite.
    """
    numbers: list[str] = []

    def written(item: object) -> str:
        if not isinstance(item, Decimal):
            raise TypeError(f"Object of type {type(item).__name__} is not JSON serializable")
        if not item.is_finite():
            raise ValueError("Out of range float values are not JSON compliant")
        numbers.append(str(item))
        return _NUMBER

    text = json.dumps(value, default=written, **options)
    if not numbers:
        return text
    parts = text.split(f'"{_NUMBER}"')
    return "".join(chain.from_iterable(zip_longest(parts, numbers, fillvalue="")))


def refuse_constant(constant: str) -> NoReturn:
    """Raise `ValueError`: NaN and the infinities are not JSON."""
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError("a number is beyond the range of a float")
    return value


def exact_decimal(text: str) -> Decimal:
    """Return a number with all its digits. Raises `ValueError` for an exponent beyond 18 digits."""
    try:
        return _EXACT.create_decimal(text)
    except DecimalException:
        raise ValueError("a number is beyond the range of a Decimal") from None


def exact_integer(text: str) -> int | Decimal:
    """Return a whole number; `-0` is a `Decimal`, as only that has the sign."""
    return Decimal(text) if text == "-0" else int(text)


decode = JSONDecoder(parse_constant=refuse_constant, parse_float=_finite).decode
"""Read JSON text as RFC 8259 defines it; raise `ValueError` or `RecursionError`.

Numbers with a fraction or an exponent become the nearest `float`; those beyond its range are
refused. Of a name that an object has twice, the last value counts."""

decode_exactly = JSONDecoder(
    parse_constant=refuse_constant, parse_float=exact_decimal, parse_int=exact_integer
).decode
"""The same, with each number that has a fraction or an exponent as a `Decimal`, and `-0` too."""

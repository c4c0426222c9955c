"""JSON that reads back as the value that was written, which `json.dumps` does not ensure.

`json.dumps` turns names that are numbers, true, false or null into strings, so `{7: 1}` comes back
as `{"7": 1}`, and `{7: 1, "7": 2}` has one name twice. It cannot write a `Decimal` at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
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

import msgspec

# The literal at the start is found fast; the first assertion rules most names out.
_like_a_coerced_name = re.compile(
    r'":(?<=[0-9el]":)(?:(?<=[0-9]":)|(?<="true":)|(?<="false":)|(?<="null":))'
).search
_are_plain = frozenset((str, int, float, bool, type(None))).issuperset
_are_strings = frozenset((str,)).issuperset
_written_by_msgspec = msgspec.json.Encoder().encode
_lines_by_msgspec = msgspec.json.Encoder().encode_lines
_read_lines = msgspec.json.Decoder().decode_lines
read_fast: Callable[[bytes], Any] = msgspec.json.Decoder().decode
"""Return what `decode` reads from UTF-8, several times as fast.

Raises `msgspec.MsgspecError`, `ValueError` or `RecursionError` for what only `decode` may read,
such as half of a surrogate pair."""
# The first one is fast, and also finds texts such as those of a UUID.
_like_an_exponent = re.compile(rb"e(?<=[0-9]e)(?=-?[0-9])").search
_exponent = re.compile(rb"(?:\A|[\n:\[,])-?[0-9]+(?:\.[0-9]+)?e-?[0-9]").search
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
_NUMBER = f"number {uuid4().hex}"
"""Takes the place of each `Decimal` while the rest is written; no record contains it."""


def coerced_names(value: Any, text: str) -> list[Any]:
    """Return the names in a value that are not strings; `text` is what `json` wrote for it.

    The value is searched only if the text has a name that may have been something other than a
    string.
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


def written_fast(value: Any) -> bytes | None:
    """Return what `json` writes for a value, compactly and in UTF-8; several times as fast.

    `None` if msgspec cannot write the value, or may write something else. It takes more types than
    `json`, as what they are not: a time becomes a string, and NaN becomes null. So what it writes
    counts only if it reads back as an equal value.
    """
    try:
        data = _written_by_msgspec(value)
        return None if _may_differ(data) or read_fast(data) != value else data
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return None


def all_written_fast(values: Sequence[Any]) -> list[bytes | None]:
    """Return what `written_fast` returns for each value; in half of the time if there are several.

    `None` is in place of those whose numbers `json` may write in another way. Raises any exception
    if one is null, or for any other reason must be written by `json`.
    """
    if None in values:
        raise ValueError("null is no value")
    data = _lines_by_msgspec(values)
    if _read_lines(data) != [*values]:
        raise ValueError("msgspec writes a value as another one")
    lines: list[bytes | None] = [*data.split(b"\n")[:-1]]
    if _may_differ(data):
        return [None if line is None or _may_differ(line) else line for line in lines]
    return lines


def _may_differ(data: bytes) -> bool:
    """Return whether numbers are close to zero or have exponents, which `json` may write otherwise.

    Data with these digits in a string may count too.
    """
    if b"0.0000" in data:
        return True
    return _like_an_exponent(data) is not None and _exponent(data) is not None


def dumps(value: Any, **options: Any) -> str:
    """Return the text that `json.dumps` gives for a value, with all digits of each `Decimal`.

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
    """Return a whole number; `-0` becomes a `Decimal`, since an `int` has no negative zero."""
    return Decimal(text) if text == "-0" else int(text)


decode = JSONDecoder(parse_constant=refuse_constant, parse_float=_finite).decode
"""Read JSON text as RFC 8259 defines it; raise `ValueError` or `RecursionError`.

Numbers with a fraction or an exponent become the nearest `float`; those beyond its range are
refused. If an object has a name twice, the last value counts.
"""

decode_exactly = JSONDecoder(
    parse_constant=refuse_constant, parse_float=exact_decimal, parse_int=exact_integer
).decode
"""Like `decode`, but numbers with a fraction or an exponent, and `-0`, become a `Decimal`."""

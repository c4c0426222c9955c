"""Finds numbers of JSON with which Spark is busy for minutes, or for good.

To read a DECIMAL, Spark makes a number of as many digits as the exponent says: 1e-10000000 takes
45 s, and 1e10000000 many minutes. It also takes strings for numbers there. SPARK-55932 is the same
with VARIANT.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from json import JSONDecoder

_MOST = 9_999
_WRONG = "a number for a DECIMAL has an exponent of more than four digits"

_FIELD = re.compile(
    r"(`(?:[^`]|``)+`|\w+)\s*:?\s*(?:(?:array\s*<|map\s*<[^<>,]+,)\s*)*(?:decimal|dec|numeric)\b",
    re.IGNORECASE,
)
"""A field whose type, in Spark's DDL, is a DECIMAL, or an array or a map of some."""

# Spark leaves commas out of strings, and takes the digits of other scripts.
_may_be_large = re.compile(rb"[eE][-+,]*(?:[0-9,]{5}|[0-9,]*[\x80-\xff\\])|\\u00[46]5").search
_number = re.compile(r"[-+]?\d*\.?\d*[eE]([-+]?\d+)").fullmatch
_decode = JSONDecoder(
    parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=tuple
).decode


@cache
def decimal_fields(schemas: tuple[str, ...]) -> frozenset[str]:
    """Return the names of all fields of these schemas, given as Spark's DDL, that have DECIMALs."""
    found = (name for schema in schemas for name in _FIELD.findall(schema))
    return frozenset(name.strip("`").replace("``", "`") for name in found)


def exponent_problem(value: bytes, decimals: frozenset[str]) -> str:
    """Return what is wrong with JSON that has a large exponent in one of these fields, or "".

    What may have one and is not JSON counts too: Spark reads the start of it.
    """
    if not decimals or _may_be_large(value) is None:
        return ""
    try:
        waiting = [(_decode(value.decode()), False)]
    except (ValueError, RecursionError):
        return _WRONG
    while waiting:
        item, is_decimal = waiting.pop()
        if isinstance(item, tuple):
            waiting += [(each, is_decimal or name in decimals) for name, each in item]
        elif isinstance(item, list):
            waiting += [(each, is_decimal) for each in item]
        elif is_decimal and isinstance(item, str) and _is_large(item):
            return _WRONG
    return ""


def count_small(values: Iterable[bytes | None], decimals: frozenset[str]) -> tuple[int, str]:
    """Return how many values come before the first with a large exponent, and what is wrong."""
    count = 0
    for value in values:
        if value is not None and (wrong := exponent_problem(value, decimals)):
            return count, wrong
        count += 1
    return count, ""


def _is_large(text: str) -> bool:
    found = _number(text.replace(",", ""))
    return found is not None and (len(found[1]) > 1_000 or abs(int(found[1])) > _MOST)

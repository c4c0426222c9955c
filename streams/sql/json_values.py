"""Compares JSON values by the fields that a query reads, where only Spark knows their types."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it is written: a FLOAT of Python would take different decimals for equal."""

    text: str


_DECODER = json.JSONDecoder(
    parse_int=_Number,
    parse_float=_Number,
    parse_constant=_Number,
    # In the order of the text: a STRING may have an object, and the order is then part of it.
    object_pairs_hook=tuple,
)


def have_same_fields(value: bytes | None, other: bytes, names: Collection[str]) -> bool:
    """Whether Spark reads the same from two values in columns with these names.

    The order of the fields does not matter, nor do others, and a missing one is a null. What does
    not look the same is taken to differ: `1.0` and `1.00`, or another order in an object within the
    value. So is a value that is not a JSON object, unless the bytes are equal.
    """
    return value == other or (
        value is not None
        and (fields := _fields(value, names)) is not None
        and fields == _fields(other, names)
    )


def _fields(value: bytes, names: Collection[str]) -> list[Any] | None:
    """Return the fields with these names, of which the last one counts; `None` without an object.

    An array has no pairs of names and values, and is a list.
    """
    try:
        pairs = _DECODER.decode(value.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, tuple):
        return None
    found = dict(pairs)
    return [found.get(name) for name in names]

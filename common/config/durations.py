"""Durations in YAML such as `10 min`, in milliseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence

UNITS = ("ms", "s", "sec", "min", "h", "d")
_LENGTHS_MS = dict(zip(UNITS, (1, 1000, 1000, 60_000, 3_600_000, 86_400_000), strict=True))
_SPOKEN = ("d", "h", "min", "s", "ms")


def pattern(units: Sequence[str], low: int) -> str:
    """Return a regular expression for whole numbers of these units, from `low` (0 or 1) up."""
    number = "[1-9][0-9]*" if low else "0|[1-9][0-9]*"
    return rf"^({number})\s*({'|'.join(units)})$"


def parsed(text: str, units: Sequence[str], low: int) -> int | None:
    """Return a duration in ms; `None` if the text does not match its `pattern`."""
    found = re.fullmatch(pattern(units, low), text)
    return None if found is None else int(found[1]) * _LENGTHS_MS[found[2]]


def spoken(duration_ms: int) -> str:
    """Return a duration in the largest unit that needs no fraction, such as `90 min`."""
    for unit in _SPOKEN:
        if duration_ms >= _LENGTHS_MS[unit] and duration_ms % _LENGTHS_MS[unit] == 0:
            return f"{duration_ms // _LENGTHS_MS[unit]} {unit}"
    return "0 s"

"""Compares what came with what a suite expects, and says where they first differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


def is_same(found: Any, wanted: Any) -> bool:
    """Whether two values are deeply equal.

    1, 1.0 and true are not equal to each other, nor are 0.0 and -0.0; NaN equals NaN. So two keys
    are the same only if their bytes are.
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = found.keys()
        return keys == wanted.keys() and all(is_same(found[key], wanted[key]) for key in keys)
    if isinstance(found, list | tuple) and type(found) is type(wanted):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if type(found) is type(wanted) is float:
        return repr(found) == repr(wanted)
    kinds = {type(found), type(wanted)}
    return bool(found == wanted) and not (len(kinds) > 1 and kinds <= {bool, int, float})


def difference(
    found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], why: str = ""
) -> str:
    """Return a description of records that differ: what came, what was expected, and where.

    `why` says why what came is not all.
    """
    both = f"{_text_of(found)}{why}, expected {_text_of(wanted)}"
    pairs = list(zip(found, wanted, strict=False))
    for number, (one, other) in enumerate(pairs, 1):
        if not is_same(one, other):
            at = _first(one, other, "")
            is_plain = len(found) == len(wanted) == 1 and at.place in one
            return both if is_plain else f"{both}: record {number} {at}"
    if len(pairs) == 0:
        return both
    what = "is missing" if len(found) < len(wanted) else "is not expected"
    return f"{both}: record {len(pairs) + 1} {what}"


class _Place(NamedTuple):
    place: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"has {self.found} at {self.place}, expected {self.wanted}"


def _first(found: Any, wanted: Any, place: str) -> _Place:
    """Return the first place at which two values differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        parts = [(f"{place}.{name}" if place else name, name) for name in {**wanted, **found}]
        ones, others = found, wanted
    elif isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        longest = range(max(len(found), len(wanted)))
        parts = [(f"{place}[{index}]", index) for index in longest]
        ones, others = dict(enumerate(found)), dict(enumerate(wanted))
    else:
        return _Place(place, _shown(found), _shown(wanted))
    for at, name in parts:
        if name not in ones:
            return _Place(at, "nothing", _shown(others[name]))
        if name not in others:
            return _Place(at, _shown(ones[name]), "nothing")
        if not is_same(ones[name], others[name]):
            return _first(ones[name], others[name], at)
    return _Place(place, _shown(found), _shown(wanted))


def _text_of(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as a message shows them."""
    return _shown(list(records)) if records else "no records"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)

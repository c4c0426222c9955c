"""JSON of frozen dataclasses: readable, and checked by the types of the fields when it is read."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class AtLeast:
    """For `Annotated[int, AtLeast(low)]`: refuses smaller numbers."""

    low: int

    def __call__(self, what: str, value: int) -> None:
        """Raise ValueError if the value is too small; `what` says whose it is."""
        if value < self.low:
            raise ValueError(f"{what} is not an integer from {self.low} up")


def as_json(value: Any) -> Any:
    """Return a value as JSON; fields of a dataclass that have their defaults are left out."""
    if is_dataclass(value):
        return {
            each.name: as_json(getattr(value, each.name))
            for each in fields(value)
            if getattr(value, each.name) != _default(each)
        }
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


def from_json(type_: Any, data: Any, what: str) -> Any:
    """Return the value of this type that `as_json` wrote. Raises ValueError for anything else.

    The type is a dataclass, or one that its fields may have: `str`, `int`, `bool`, `None`, `Any`, a
    `Literal`, a union of these, `tuple[X, ...]`, `Mapping[str, X]`, or `Annotated` with functions
    that take `what` and the value, and raise ValueError. `what` names the value in errors.
    """
    origin = get_origin(type_)
    if type_ is Any:
        return data
    if origin is Annotated:
        inner, *checks = get_args(type_)
        value = from_json(inner, data, what)
        for check in checks:
            check(what, value)
        return value
    if origin is Literal:
        if not any(type(each) is type(data) and each == data for each in get_args(type_)):
            raise ValueError(f"{what} is not one of {', '.join(map(str, get_args(type_)))}")
        return data
    if origin in (Union, types.UnionType):
        return _of_union(get_args(type_), data, what)
    if origin is tuple:
        element = get_args(type_)[0]
        return tuple(from_json(element, each, what) for each in _require(list, data, what))
    if origin is not None:
        key, element = get_args(type_)
        return {
            from_json(key, name, f"a key of {what}"): from_json(element, each, f"{what}.{name}")
            for name, each in _require(dict, data, what).items()
        }
    if is_dataclass(type_):
        return _of_dataclass(type_, data, what)
    return _require(type_, data, what)


def _of_union(choices: tuple[Any, ...], data: Any, what: str) -> Any:
    wrong = ValueError(f"{what} has another type")
    for choice in choices:
        try:
            return from_json(choice, data, what)
        except ValueError as error:
            wrong = error
    raise wrong


def _of_dataclass(type_: Any, data: Any, what: str) -> Any:
    given = _require(dict, data, what)
    known = {each.name: each for each in fields(type_)}
    unknown = given.keys() - known.keys()
    if unknown:
        raise ValueError(f"{what} has the unknown field {min(unknown)}")
    for name, each in known.items():
        if name not in given and _default(each) is MISSING:
            raise ValueError(f"{what}.{name} is missing")
    hints = _hints(type_)
    return type_(**{name: from_json(hints[name], given[name], name) for name in given})


@cache
def _hints(type_: Any) -> dict[str, Any]:
    return get_type_hints(type_, include_extras=True)


def _default(each: Field[Any]) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _require(type_: Any, data: Any, what: str) -> Any:
    """Return `data` if it has exactly this type; a string must be one that UTF-8 can hold."""
    if type(data) is not type_:
        raise ValueError(f"{what} is not {_NAMES[type_]}")
    if isinstance(data, str):
        data.encode()
    return data


_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "a JSON object",
    type(None): "null",
}

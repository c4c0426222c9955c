"""Finds what fastavro would write as another value: 2.7 as the int 2, a time as its date.

Fields that the schema lacks would not be written at all.

Everything else that does not fit, fastavro refuses itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from datetime import datetime, time
from decimal import Decimal
from functools import partial
from math import inf
from typing import Any
from uuid import UUID

from kafka_pipeline.common.kafka.avro_types import (
    base_type,
    label_of,
    members_of,
    named_in,
    resolved_type,
)

_Loss = tuple[tuple[str, ...], str]
"""The names of the fields on the way to a value, and what is wrong with it."""
_Find = Callable[[Any], _Loss | None]

_TYPE_HINT = "-type"
"""The name under which a record may say to fastavro which type of a union it has."""

_NUMBERS: Any = (int, float, Decimal)
LIMITS: Mapping[str, Any] = {
    "int": 2**31,
    "long": 2**63,
    "float": 3.4028235677973366e38,
    "double": 2**1024,
}
"""The least numbers that are beyond the range of a type."""


def loss_finder(schema: Any) -> Callable[[Any], str] | None:
    """Return a function that says which field of a value would be written as another value.

    The function gives "" if there is none; `None` if no type of the schema needs it. `schema` is as
    fastavro's `parse_schema` returns it.
    """
    find = _Finders(schema).of(schema)
    if find is None:
        return None

    def found(value: Any) -> str:
        try:
            loss = find(value)
        except (TypeError, AttributeError, ArithmeticError):
            return ""  # It is something else, which fastavro refuses.
        if loss is None:
            return ""
        path, words = loss
        return f'field "{".".join(path)}" {words}' if path else f"it {words}"

    return found


class _Finders:
    """Makes the functions for the types of a schema: `None` where nothing can be lost."""

    def __init__(self, schema: Any) -> None:
        self._named = named_in(schema)
        self._of_records: dict[str, _Find | None] = {}

    def of(self, schema: Any) -> _Find | None:
        schema = resolved_type(schema, self._named)
        logical = _of_logical(schema) if isinstance(schema, dict) else None
        return _first_of(logical, self._of_base(schema))

    def _of_base(self, schema: Any) -> _Find | None:
        match base_type(schema):
            case "null":
                return _null
            case "boolean":
                return _boolean
            case "int" | "long" as base:
                return partial(_whole, base, LIMITS[base])
            case "float" | "double" as base:
                return partial(_real, base, LIMITS[base])
            case "union":
                return self._of_union(members_of(schema))
            case "array":
                return _first_of(_array, _any_of(self.of(schema["items"]), iter))
            case "map":
                return _any_of(self.of(schema["values"]), dict.values)
            case "record":
                return self._of_record(schema)
        return None

    def _of_union(self, members: Sequence[Any]) -> _Find | None:
        finds = {label_of(each, self._named): self.of(each) for each in members}
        if not any(finds.values()):
            return None
        # Of several types, fastavro itself takes the first one that a value without a name fits.
        only = next(iter(finds.values())) if len(finds) == 1 else _first_moment(members)

        def find(value: Any) -> _Loss | None:
            name, plain = value if isinstance(value, tuple) else (None, value)
            of_type = only if name is None else finds.get(name)
            return None if plain is None or of_type is None else of_type(plain)

        return find

    def _of_record(self, schema: Any) -> _Find | None:
        name = schema["name"]
        if name not in self._of_records:
            # For a type that contains itself.
            self._of_records[name] = lambda value: self._of_records[name](value)  # type: ignore[misc]
            finds = [
                (field["name"], field.get("default"), find)
                for field in schema["fields"]
                if (find := self.of(field["type"])) is not None
            ]
            names = {_TYPE_HINT, *(field["name"] for field in schema["fields"])}
            self._of_records[name] = _any_field(names, finds)
        return self._of_records[name]


def _first_of(one: _Find | None, other: _Find | None) -> _Find | None:
    if one is None or other is None:
        return one or other
    return lambda value: one(value) or other(value)


def _of_logical(schema: Mapping[str, Any]) -> _Find | None:
    match str(schema.get("logicalType")).split("-"):
        case ["date"]:
            return _date
        case ["decimal"]:
            return partial(_decimal, int(schema.get("precision", 0)), int(schema.get("scale", 0)))
        case ["uuid"] if base_type(schema) == "string":
            return _uuid
        case ["timestamp", unit]:
            return _millis if unit == "millis" else None
        case ["time", unit] | ["local", "timestamp", unit]:
            return _first_of(_local, _millis if unit == "millis" else None)
    return None


def _first_moment(members: Sequence[Any]) -> _Find | None:
    """Return what finds times that a union would take as dates, if the date is its first type."""
    logical = (str(each.get("logicalType")) for each in members if isinstance(each, dict))
    first = next((each for each in logical if each == "date" or "timestamp" in each), "")
    return _date if first == "date" else None


def _date(value: Any) -> _Loss | None:
    return ((), "is a time, not a date") if isinstance(value, datetime) else None


def _millis(value: Any) -> _Loss | None:
    if isinstance(value, datetime | time) and value.microsecond % 1000:
        return (), "has microseconds, and the schema has milliseconds"
    return None


def _local(value: Any) -> _Loss | None:
    if isinstance(value, datetime | time) and value.tzinfo is not None:
        return (), "has a time zone, and the schema has none"
    return None


def _decimal(precision: int, scale: int, value: Any) -> _Loss | None:
    # fastavro counts the digits without the zeros that the scale adds.
    if isinstance(value, Decimal) and value and value.adjusted() + 1 + scale > precision:
        return (), f"has more than {precision} digits"
    return None


def _uuid(value: Any) -> _Loss | None:
    try:
        if isinstance(value, str):
            UUID(value)
    except ValueError:
        return (), "is not a UUID"
    return None


def _array(value: Any) -> _Loss | None:
    if type(value) is list:
        return None
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sized):
        return (), f"is a {type(value).__name__}, not an array"
    return None


def _null(value: Any) -> _Loss | None:
    return None if value is None else ((), f"is a {type(value).__name__}, not null")


def _boolean(value: Any) -> _Loss | None:
    if value is True or value is False:
        return None
    kind = "null or missing" if value is None else f"a {type(value).__name__}"
    return (), f"is {kind}, not boolean"


def _whole(base: str, limit: float, value: Any) -> _Loss | None:
    if type(value) is int and -limit <= value < limit:
        return None
    if not isinstance(value, _NUMBERS) or (-limit <= value < limit and value == int(value)):
        return None
    return (), f"is not a whole number, or beyond the range of {base}"


def _real(base: str, limit: float, value: Any) -> _Loss | None:
    if type(value) is float and -limit < value < limit:
        return None
    if isinstance(value, _NUMBERS) and limit <= abs(value) != inf:
        return (), f"is beyond the range of {base}"
    return None


def _any_of(find: _Find | None, items: Callable[[Any], Iterable[Any]]) -> _Find | None:
    if find is None:
        return None
    return lambda value: next(filter(None, map(find, items(value))), None)


def _any_field(names: set[str], finds: Sequence[tuple[str, Any, _Find]]) -> _Find:
    def find(value: Any) -> _Loss | None:
        if not value.keys() <= names:
            unknown = next(name for name in value if name not in names)
            return (str(unknown),), "is not in the schema"
        for name, default, of_field in finds:
            if (loss := of_field(value.get(name, default))) is not None:
                path, words = loss
                return (name, *path), words
        return None

    return find

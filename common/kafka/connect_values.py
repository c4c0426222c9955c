"""Values of Kafka Connect as JSON has them: decimals, dates and times, by the names of their types.

Connect's JsonConverter writes such a value as a number or as base64, and says in the schema what it
is; AvroConverter says it in the property `connect.name`. Debezium has types of its own in addition
(`io.debezium.time`, `io.debezium.data`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, DecimalException
from math import isfinite
from typing import Any

Convert = Callable[[Any], Any]
"""Converts a value that is not null. Raises ValueError, whose message quotes nothing of it."""

_EPOCH = datetime(1970, 1, 1)
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
DECIMAL = f"{_CONNECT}Decimal"
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"


def converters(struct: Mapping[str, Any]) -> dict[str, Convert]:
    """Return the functions for those fields of a struct that JSON has in another form.

    Raises ValueError if this is not the schema of a struct.
    """
    fields = struct.get("fields")
    if not isinstance(fields, list):
        raise ValueError("the schema has no fields")
    found = {}
    for field in fields:
        convert = _converter(field)
        if convert is not None:
            found[str(field.get("field"))] = convert
    return found


def converted(row: Mapping[str, Any], of_fields: Mapping[str, Convert]) -> dict[str, Any]:
    """Return a struct with its values converted. Raises ValueError, which names the field."""
    result = dict(row)
    for name, convert in of_fields.items():
        value = result.get(name)
        if value is None:
            continue
        try:
            result[name] = convert(value)
        except LookupError:
            raise ValueError(f"{name}: the value does not have the form of its type") from None
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{name}: {error}") from None
    return result


def _converter(schema: Any) -> Convert | None:
    if not isinstance(schema, Mapping):
        raise ValueError("the schema of a field is not an object")
    name = schema.get("name") or ""
    if name == DECIMAL:
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        return lambda value: _decimal(value, scale)
    if name == VARIABLE_DECIMAL:
        return lambda value: _decimal(value["value"], value["scale"])
    if convert := BY_NAME.get(name):
        return convert
    if schema.get("type") == "array":
        of_items = _converter(schema.get("items"))
        if of_items is not None:
            return lambda value: [None if item is None else of_items(item) for item in value]
    return None


def _decimal(value: Any, scale: int) -> Any:
    """Return a decimal of its unscaled bytes, big-endian; numbers are as they should be."""
    if not isinstance(value, str):
        return value
    try:
        data = b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("the decimal is not in base64") from None
    return decimal_of(data, scale)


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Return a decimal of its unscaled bytes: big-endian, in two's complement."""
    unscaled = Decimal(int.from_bytes(data, "big", signed=True))
    try:
        return unscaled.scaleb(-scale, _EXACT)
    except DecimalException:
        raise ValueError("the decimal has a scale that is out of range") from None


def finite_or_text(value: float) -> float | str:
    """Return NaN and infinity as text, as JSON has no numbers for them. Spark reads them back."""
    if isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def date_of(days: int) -> str:
    """Return the date that is so many days after 1970-01-01, as ISO 8601 has it."""
    try:
        return (_EPOCH.date() + timedelta(days=days)).isoformat()
    except OverflowError:
        raise ValueError(_OUT_OF_RANGE) from None


def moment(per_second: int) -> Convert:
    """Return what makes ISO 8601 of a count of units since 1970, of which a second has so many."""

    def convert(count: int) -> str:
        seconds, rest = divmod(count, per_second)
        try:
            whole = (_EPOCH + timedelta(seconds=seconds)).isoformat()
        except OverflowError:
            raise ValueError(_OUT_OF_RANGE) from None
        return whole + _fraction(rest, per_second)

    return convert


def time_of_day(per_second: int) -> Convert:
    """Return what makes ISO 8601 of a count of units since midnight."""

    def convert(count: int) -> str:
        # MySQL's TIME may have more hours than a day, or be negative; 24:00:00 is PostgreSQL's.
        seconds, rest = divmod(abs(count), per_second)
        hours, minutes = seconds // 3600, seconds // 60 % 60
        sign = "-" if count < 0 else ""
        return f"{sign}{hours:02}:{minutes:02}:{seconds % 60:02}{_fraction(rest, per_second)}"

    return convert


def _fraction(rest: int, per_second: int) -> str:
    """Return the digits after the seconds: as many as the unit has, without zeros at the end."""
    if not rest:
        return ""
    digits = str(rest).zfill(len(str(per_second)) - 1)
    return "." + digits.rstrip("0")


_OUT_OF_RANGE = f"the time is not between the years {date.min.year} and {date.max.year}"
_UNITS = {"": 1_000, "Micro": 1_000_000, "Nano": 1_000_000_000}
BY_NAME: Mapping[str, Convert] = {
    f"{_CONNECT}Date": date_of,
    f"{_CONNECT}Time": time_of_day(1_000),
    f"{_CONNECT}Timestamp": moment(1_000),
    f"{_DEBEZIUM}Date": date_of,
    **{f"{_DEBEZIUM}{unit}Time": time_of_day(count) for unit, count in _UNITS.items()},
    **{f"{_DEBEZIUM}{unit}Timestamp": moment(count) for unit, count in _UNITS.items()},
}
"""The functions of integers, by the names of Connect's types."""

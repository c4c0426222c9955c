"""Values of MongoDB as JSON has them, out of its Extended JSON: `{"$numberLong": "7"}` is 7.

Debezium's connector writes documents in version 1 (its default) or 2 of Extended JSON. See
https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from kafka_pipeline.common.kafka.connect_values import finite_or_text, moment

_of_millis = moment(1_000)


def plain(value: Any) -> Any:
    """Return a value without fields that say its type.

    Values that JSON has nothing for stay as they are, such as regular expressions. Raises
    ValueError, whose message quotes nothing of the value.
    """
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if (convert := _BY_NAME.get(name)) is None:
        return {key: plain(each) for key, each in value.items()}
    try:
        return convert(value[name])
    except (ValueError, TypeError, KeyError, InvalidOperation, OverflowError) as error:
        raise ValueError(f"{name} has a value that cannot be read") from error


def _date(value: Any) -> Any:
    """Return a moment as text: from milliseconds since 1970, as version 2 has it already."""
    return value if isinstance(value, str) else f"{_of_millis(int(plain(value)))}Z"


def _decimal(value: str) -> Decimal | None:
    """Return a decimal; `None` for NaN and the infinite ones, which JSON does not have."""
    number = Decimal(value)
    return number if number.is_finite() else None


def _binary(value: Any) -> str:
    """Return the base64, which version 2 has in another field."""
    return str(value["base64"] if isinstance(value, Mapping) else value)


_BY_NAME: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$uuid": str,
    "$numberInt": int,
    "$numberLong": int,
    "$numberDouble": lambda value: finite_or_text(float(value)),
    "$numberDecimal": _decimal,
    "$date": _date,
    "$binary": _binary,
}

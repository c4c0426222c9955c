"""The functions that begin column expressions."""

from __future__ import annotations

from kafka_pipeline.streams.dsl.expressions import (
    Coalesce,
    Expression,
    Field,
    Key,
    Struct,
    Then,
    Timestamp,
    Value,
    condition_of,
    expression_of,
)
from kafka_pipeline.streams.errors import InvalidArgumentError


def col(name: str) -> Expression:
    """Return a field of a value that is a dict; `col("plane.model")` is a field of a field.

    It is null if the value does not have the field, or is null. For names with dots in them, use
    `value()["a.b"]`.
    """
    if not isinstance(name, str) or not all(name.split(".")):
        raise InvalidArgumentError(f'col takes the name of a field, as "a" or "a.b", not {name!r}')
    found: Expression = Value()
    for part in name.split("."):
        found = Field(found, part)
    return found


def key() -> Expression:
    """Return the key of the record."""
    return Key()


def value() -> Expression:
    """Return the value of the record."""
    return Value()


def timestamp() -> Expression:
    """Return the timestamp of the record, in ms since the epoch. Tables do not have it."""
    return Timestamp()


def when(condition: object) -> Then:
    """Begin a choice: `when(col("delay") > 15).then("late").otherwise("on time")`.

    The first condition that is true decides; a condition that is null is not true. Only the result
    that is chosen is computed.
    """
    return Then((), condition_of(condition))


def coalesce(*choices: object) -> Expression:
    """Return the first of several expressions that is not null."""
    if not choices:
        raise InvalidArgumentError("coalesce takes one expression or more")
    return Coalesce(tuple(map(expression_of, choices)))


def struct(**fields: object) -> Expression:
    """Return a dict with these fields, for `map_values`."""
    if not fields:
        raise InvalidArgumentError("struct takes fields: struct(name=expression, …)")
    return Struct(tuple((name, expression_of(each)) for name, each in fields.items()))

"""Turns ORDER BY into columns that Spark compares field by field, the smallest first.

A queue of rows compares structs: in the natural order of each field, nulls first. So a descending
column is inverted, and nulls that come last get a column of their own in front.
"""

from __future__ import annotations

from typing import Any

from kafka_pipeline.streams.sql.plan import literal, seq
from kafka_pipeline.streams.sql.spec import QueryError

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamp_ntz")
_DIGITS = "0123456789ABCDEF"


def order_name(order: Any) -> str:
    """Return the type and the direction of a column of ORDER BY."""
    return " ".join([_type_of(order.child()), *_directions(order)])


def sorting_columns(order: Any, jvm: Any) -> list[Any]:
    """Return the columns whose natural order is that of a column of ORDER BY.

    Raises `QueryError` if there are none.
    """
    value = order.child()
    direction, nulls = _directions(order)
    make = jvm.org.apache.spark.sql.catalyst.expressions
    columns = list[Any]()
    if value.nullable():
        if nulls == "NULLS LAST":
            columns.append(make.IsNull(value))
        elif direction == "DESC":
            columns.append(make.IsNotNull(value))
    return [*columns, *([value] if direction == "ASC" else _inverted(value, jvm))]


def _inverted(value: Any, jvm: Any) -> list[Any]:
    """Return columns that are the smaller, the larger a value is."""
    make, types = jvm.org.apache.spark.sql.catalyst.expressions, jvm.org.apache.spark.sql.types
    type_ = _type_of(value)
    if type_ in _WHOLE:
        # Minus the smallest number would be too large for its type.
        return [make.BitwiseNot(value)]
    if type_ == "boolean":
        return [make.Not(value)]
    if type_ == "date":
        return [make.BitwiseNot(make.UnixDate(value))]
    if type_ in _TIMES:
        long = types.DataType.fromDDL("bigint")
        return [make.BitwiseNot(make.PreciseTimestampConversion(value, value.dataType(), long))]
    if type_ in ("float", "double"):
        # NaN is larger than all others, and so is its negative.
        return [make.Not(make.IsNaN(value)), make.UnaryMinus(value)]
    if type_.startswith("decimal"):
        return [make.UnaryMinus(value)]
    if type_ in ("string", "binary"):
        # As digits of bytes that count down; the letter at the end puts longer ones first.
        digits = [literal(text, "string", jvm) for text in (_DIGITS, _DIGITS[::-1])]
        turned = make.StringTranslate(make.Hex(value), *digits)
        return [make.Concat(seq(jvm, [turned, literal("G", "string", jvm)]))]
    raise QueryError(
        f"ORDER BY {value.sql()} DESC: rows are kept in ascending order, and values of the type "
        f"{type_} cannot be inverted: order by numbers, timestamps, dates, booleans or strings"
    )


def _directions(order: Any) -> tuple[str, str]:
    return str(order.direction().sql()), str(order.nullOrdering().sql())


def _type_of(value: Any) -> str:
    return str(value.dataType().catalogString())

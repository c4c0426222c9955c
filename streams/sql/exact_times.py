"""Moments in the JSON of results: with milliseconds, and with microseconds where they have these.

`to_json` of Spark has one format for all values, by default one that cuts microseconds off.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_MOMENTS = (TimestampType, TimestampNTZType)
_ZONE = "X" * 5
_MILLIS, _MICROS = (f"yyyy-MM-dd'T'HH:mm:ss.{digits}{_ZONE}" for digits in ("SSS", "SSSSSS"))
_LEAST_DIGITS = 3


def with_exact_times(column: Column, type_: DataType) -> tuple[Column, DataType]:
    """Return a column whose moments are text, as JSON has them, and its type if it is flat."""
    if isinstance(type_, _MOMENTS):
        return _text(column, type_), StringType()
    return (_nested(column, type_) if _has_moments(type_) else column), type_


def _text(column: Column, type_: DataType) -> Column:
    if isinstance(type_, TimestampType):
        is_whole = F.unix_micros(column) % 1000 == 0
        return F.when(is_whole, F.date_format(column, _MILLIS)).otherwise(
            F.date_format(column, _MICROS)
        )
    # Spark would format it as a moment of the session's zone, which may not have that hour.
    text = F.translate(column.cast("string"), " ", "T")
    digits = F.when(F.contains(text, F.lit(".")), F.substring_index(text, ".", -1))
    digits = F.coalesce(digits, F.lit(""))
    size = F.greatest(F.length(digits), F.lit(_LEAST_DIGITS))
    return F.concat(F.substring_index(text, ".", 1), F.lit("."), F.rpad(digits, size, F.lit("0")))


def _has_moments(type_: DataType) -> bool:
    match type_:
        case ArrayType():
            return _has_moments(type_.elementType)
        case MapType():
            return _has_moments(type_.valueType)
        case StructType():
            return any(_has_moments(each.dataType) for each in type_.fields)
    return isinstance(type_, _MOMENTS)


def _nested(column: Column, type_: DataType) -> Column:
    match type_:
        case _ if not _has_moments(type_):
            return column
        case ArrayType():
            return F.transform(column, lambda each: _nested(each, type_.elementType))
        case MapType():
            return F.transform_values(column, lambda _, each: _nested(each, type_.valueType))
        case StructType():
            fields = (
                _nested(column.getField(each.name), each.dataType).alias(each.name)
                for each in type_.fields
            )
            return F.when(column.isNotNull(), F.struct(*fields))
    return _text(column, type_)

"""Refuses floats that JSON does not have: NaN and the infinities."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

_INFINITE = float("inf")


def finite(frame: DataFrame, names: list[str], words: str) -> dict[str, Column]:
    """Return columns by their names, which raise `words` for a float that is not finite.

    `words` may name the column with `{name}`. Only columns that can have one are returned.
    """
    checked = {}
    for name in names:
        type_ = frame.schema[name].dataType
        column = F.col(f"`{name}`")
        if has_floats(type_):
            refused = F.raise_error(words.format(name=name)).cast(type_)
            checked[name] = F.when(_is_not_finite(column, type_), refused).otherwise(column)
    return checked


def has_floats(type_: DataType) -> bool:
    """Whether a value of a type may have a float in it."""
    match type_:
        case FloatType() | DoubleType():
            return True
        case ArrayType(elementType=inner) | MapType(valueType=inner):
            return has_floats(inner)
        case StructType(fields=fields):
            return any(has_floats(field.dataType) for field in fields)
    return False


def _is_not_finite(column: Column, type_: DataType) -> Column:
    match type_:
        case ArrayType(elementType=inner):
            return F.exists(column, lambda item: _is_not_finite(item, inner))
        case MapType(valueType=inner):
            values = F.map_values(column)
            return F.exists(values, lambda item: _is_not_finite(item, inner))
        case StructType(fields=fields):
            found = F.lit(False)
            for field in fields:
                if has_floats(field.dataType):
                    found = found | _is_not_finite(column[field.name], field.dataType)
            return found
    return F.isnan(column) | (F.abs(column) == _INFINITE)

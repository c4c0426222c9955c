"""The rows that one stage of a query sends to the next, as JSON that loses nothing.

The values of these records are written and read with the same formats. Spark would otherwise cut
times to milliseconds, and refuse NaN and infinite numbers, which become text here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.common.spark_types import OF_RECORDS
from kafka_pipeline.streams.sql.spec import QueryError, quoted

_FORMATS: Mapping[str, str] = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
}
"""The options by which times and dates are written and read."""

WRITING: Mapping[str, str] = {**_FORMATS, "ignoreNullFields": "false"}
"""The options of `to_json` for these values."""

READING: Mapping[str, str] = {**_FORMATS, "mode": "FAILFAST", "allowNonNumericNumbers": "true"}
"""The options of `from_json` for these values."""


def fields_of(result: StructType) -> StructType:
    """Return the columns of a result that are in its value."""
    return StructType([each for each in result.fields if each.name.lower() not in OF_RECORDS])


def seen(raw: DataFrame, value: Column | None, result: StructType) -> DataFrame:
    """Return the columns of a stage's result, in their order, and no others.

    They are columns of the records `raw`, or fields of the struct `value` if that is given.
    """
    parsed = raw if value is None else raw.withColumn("value", value)
    columns = []
    for field in result.fields:
        if field.name.lower() in OF_RECORDS:
            column = F.col(field.name.lower())
        elif value is None:
            column = F.col(quoted(field.name))
        else:
            column = F.col("value").getField(field.name)
        columns.append(column.alias(field.name))
    return parsed.select(*columns)


def rows_of_columns(columns: StructType, records: pa.Schema) -> pa.Schema | None:
    """Return the columns of records with these in place of the value.

    `None` if Arrow lacks one of their types, or if two columns would have one name.
    """
    try:
        types = to_arrow_schema(columns, timezone="UTC")
    except PySparkTypeError:
        return None
    key, _, *others = records
    rows = pa.schema([key, *types, *others])
    return rows if len({name.casefold() for name in rows.names}) == len(rows) else None


def restored(rows: DataFrame, columns: StructType) -> DataFrame:
    """Return rows with these columns and those of records.

    The columns get the types that they have, where Arrow knows less: collations, and the fields of
    intervals.
    """
    had = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    found = []
    for field in columns.fields:
        column = F.col(quoted(field.name))
        if had[field.name] != field.dataType.simpleString():
            column = column.cast(field.dataType).alias(field.name)
        found.append(column)
    return rows.select(*found, *OF_RECORDS)


def require_lossless(result: StructType, format_: Format) -> None:
    """Raise `QueryError` for a column of a result whose values would not arrive as they are."""
    key_type = "binary" if format_ == "binary" else "string"
    for field in result.fields:
        name, type_ = field.name.lower(), field.dataType
        what = f"the query gives {field.name} as {type_.simpleString().upper()}"
        if name == "key" and type_.simpleString() != key_type:
            raise QueryError(
                f"{what}, and the rest of the query would read the key of its records as "
                f"{key_type.upper()}: cast it, or give the column another name"
            )
        if name == "timestamp" and not isinstance(type_, TimestampType):
            raise QueryError(f"{what}: make it a TIMESTAMP, or give the column another name")
        if name not in OF_RECORDS and not _is_lossless(type_):
            raise QueryError(
                f"{what}, which cannot go to another part of the query: cast it, or make text of it"
            )
        for repeated in _repeated(type_):
            raise QueryError(
                f'{what}, and two fields called "{repeated}" cannot go to another part of the '
                "query: give each a name of its own, as in struct(n AS a, n + 1 AS b)"
            )


def quoted_floats(column: Column) -> Column:
    """Return the JSON of floats: NaN and infinite ones in quotes."""
    text = column.cast("string")
    is_text = F.isnan(column) | (F.abs(column) == float("inf"))
    return F.when(is_text, F.concat(F.lit('"'), text, F.lit('"'))).otherwise(text)


def _repeated(type_: DataType) -> Iterator[str]:
    """Yield the names that several fields of one struct have."""
    match type_:
        case ArrayType(elementType=inner) | MapType(valueType=inner):
            yield from _repeated(inner)
        case StructType(names=names, fields=fields):
            yield from (name for name in names if names.count(name) > 1)
            for field in fields:
                yield from _repeated(field.dataType)


def _is_lossless(type_: DataType) -> bool:
    match type_:
        case VariantType():
            return False
        case ArrayType(elementType=inner):
            return _is_lossless(inner)
        case MapType(keyType=key, valueType=inner):
            return isinstance(key, StringType) and _is_lossless(inner)
        case StructType(fields=fields):
            return all(_is_lossless(field.dataType) for field in fields)
    return True

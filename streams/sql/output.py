"""Turns the rows of a query into records: their keys, values, timestamps and headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kafka_pipeline.common.spark_types import OF_RECORDS
from kafka_pipeline.streams.sql.exact_times import with_exact_times
from kafka_pipeline.streams.sql.spec import QueryError, QuerySpec, quoted
from kafka_pipeline.streams.sql.split_results import ESCAPED
from kafka_pipeline.streams.sql.stage_rows import (
    WRITING,
    quoted_floats,
    require_lossless,
)

_AS_TEXT = frozenset(
    {
        StringType(),
        BooleanType(),
        ByteType(),
        ShortType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
    }
)
"""The types whose JSON is what a cast to STRING gives, in quotes if it is one."""

_FLOATS = (FloatType(), DoubleType())
_WRITING = {"ignoreNullFields": "false"}
_USER_DEFINED = '"type":"udt"'
_HEADERS = "array<struct<key:string,value:binary>>"
_INFINITE = float("inf")
_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
_NOT_FINITE = (
    "the query gives NaN or an infinite number for {name}, which JSON does not have: make it null "
    "or text in the query"
)


def shaped(frame: DataFrame, spec: QuerySpec, also: Sequence[str] = ()) -> DataFrame:
    """Return the columns `value` (binary) and `timestamp` (ms), and `key` and `headers` if given.

    The last columns of `frame` may be those named by `also`; they follow as they are. Raises a
    `QueryError` that lists the columns if they are not those of a record.
    """
    visible = frame.columns[: len(frame.columns) - len(also)]
    names = _by_small_letters(visible)
    given = ", ".join(visible)
    others = [name for low, name in names.items() if low not in OF_RECORDS]
    if spec.is_inner:
        require_lossless(frame.select(*visible).schema, spec.format)
        value = json_of(frame, others, spec).cast("binary")
    elif spec.format == "json":
        if not others:
            raise QueryError(f"the query gives {given}, and no column for the value")
        value = json_of(frame, others, spec).cast("binary")
    else:
        if [name.lower() for name in others] != ["value"]:
            raise QueryError(
                f"the query gives {given}: it must give value, and may give key, timestamp and "
                "headers. Put the rest into value, or use format: json"
            )
        value = _binary(frame, names["value"])
    output = [value.alias("value"), milliseconds_of(frame, names["timestamp"])]
    if "key" in names:
        output.append(key_of(frame, names["key"]))
    if "headers" in names:
        output.append(headers_of(names["headers"]))
    return frame.select(*output, *also)


def json_of(frame: DataFrame, names: Sequence[str], spec: QuerySpec) -> Column:
    """Return columns of a result as a JSON object, which is the value of a record or a part of it.

    A number that JSON does not have raises an error when it is computed, unless the record goes to
    another stage of the query, or the sink has its own form for it.
    """
    types = {name: frame.schema[name].dataType for name in names}
    keeps_all = spec.is_inner or spec.is_exact
    checked = {} if keeps_all else finite(frame, names, _NOT_FINITE)
    columns = {name: checked.get(name, F.col(f"`{name}`")) for name in names}
    if keeps_all:
        return _as_json(columns, types, WRITING)
    exact = {name: with_exact_times(column, types[name]) for name, column in columns.items()}
    columns = {name: column for name, (column, _) in exact.items()}
    return _as_json(columns, {name: type_ for name, (_, type_) in exact.items()}, _WRITING)


def key_of(frame: DataFrame, name: str) -> Column:
    """Return a column of a result as the keys of records."""
    return _binary(frame, name).alias("key")


def headers_of(name: str) -> Column:
    """Return a column of a result as the headers of records."""
    return F.col(name).cast(_HEADERS).alias("headers")


def as_columns(frame: DataFrame, spec: QuerySpec, also: Sequence[str] = ()) -> DataFrame:
    """Return the result of a stage as the next one sees it: see `QuerySession.columns_of_stage`.

    `timestamp` is a whole number of milliseconds, as it is in records. For `also`, and what is
    raised, see `shaped`.
    """
    visible = frame.columns[: len(frame.columns) - len(also)]
    names = _by_small_letters(visible)
    require_lossless(frame.select(*map(quoted, visible)).schema, spec.format)
    output = [F.col(quoted(name)) for low, name in names.items() if low not in OF_RECORDS]
    time = F.timestamp_millis(F.unix_millis(F.col(names["timestamp"])))
    output.append(time.alias("timestamp"))
    if "key" in names:
        output.append(F.col(names["key"]).alias("key"))
    if "headers" in names:
        headers = F.col(names["headers"]).cast(_HEADERS)
        # A record without headers has none, rather than an empty list.
        output.append(F.when(F.size(headers) > 0, headers).alias("headers"))
    return frame.select(*output, *also)


def _by_small_letters(names: Sequence[str]) -> dict[str, str]:
    """Return the columns of a result by their names in small letters."""
    found = {name.lower(): name for name in names}
    if len(found) < len(names):
        given = ", ".join(names)
        raise QueryError(f"the query gives two columns of one name ({given}): rename one with AS")
    return found


def _as_json(
    columns: Mapping[str, Column], types: Mapping[str, DataType], options: Mapping[str, str]
) -> Column:
    """Return columns as a JSON object.

    That is what `to_json` gives with these options, which takes several times as long as to join
    the texts of fields. It is left to `to_json` if a string has to be escaped, or if a type has a
    format of its own.
    """
    fields = [column.alias(name) for name, column in columns.items()]
    whole = F.to_json(F.struct(*fields), {**options}) if fields else F.lit("{}")
    if not fields or not {*types.values()} <= _AS_TEXT or any(map(ESCAPED.search, columns)):
        return whole
    texts = [column for name, column in columns.items() if types[name] == StringType()]
    parts = []
    for index, (name, column) in enumerate(columns.items()):
        quote = '"' if types[name] == StringType() else ""
        text = column.cast("string")
        if types[name] in _FLOATS and options is WRITING:
            text = quoted_floats(column)
        elif quote:
            text = F.concat(F.lit(quote), text, F.lit(quote))
        parts.append(F.lit(f'{"," if index else "{"}"{name}":'))
        parts.append(F.coalesce(text, F.lit("null")))
    joined = F.concat(*parts, F.lit("}"))
    if not texts:
        return joined
    # A separator, so that two strings that are not UTF-8 do not make one that is.
    all_texts = F.concat_ws("|", *texts)
    is_plain = F.is_valid_utf8(all_texts) & ~F.rlike(all_texts, F.lit(ESCAPED.pattern))
    return F.when(is_plain, joined).otherwise(whole)


def require_plain_types(frame: DataFrame) -> None:
    """Raise `QueryError` if a column has a user-defined type; to be called before `frame.schema`.

    PySpark imports the module that such a type names, although config.yaml does not list it: a
    schema, in a query or in a file, could choose what this process runs.
    """
    require_plain_type(str(frame._jdf.schema().json()))


def require_plain_type(type_: str) -> None:
    """Raise `QueryError` if a type, as JSON of Spark, has a user-defined one."""
    if _USER_DEFINED in type_:
        raise QueryError("user-defined types cannot be read: make a column of a plain type")


def _binary(frame: DataFrame, name: str) -> Column:
    type_ = frame.schema[name].dataType
    if isinstance(type_, ArrayType | MapType | StructType):
        raise QueryError(
            f"{name} is of the type {type_.simpleString()}, and must be text, a number or bytes: "
            f"make text of it, such as to_json({name})"
        )
    column = F.col(name)
    return column if isinstance(type_, BinaryType) else column.cast("string").cast("binary")


def milliseconds_of(frame: DataFrame, name: str) -> Column:
    """Return a column of a result as the timestamps of records."""
    type_ = frame.schema[name].dataType
    if not isinstance(type_, TimestampType | TimestampNTZType):
        raise QueryError(
            f"timestamp is of the type {type_.simpleString()}: make it a TIMESTAMP, or rename it "
            "with AS if it is not the time of the record"
        )
    return F.unix_millis(F.col(name).cast("timestamp")).alias("timestamp")


def finite(frame: DataFrame, names: Sequence[str], words: str) -> dict[str, Column]:
    """Return columns by their names, which raise `words` for a float that is not finite.

    `words` may name the column with `{name}`. Only columns that can have one are returned.
    """
    checked = {}
    for name in names:
        type_ = frame.schema[name].dataType
        if _has_floats(type_):
            column = F.col(f"`{name}`")
            refused = F.raise_error(words.format(name=name)).cast(type_)
            checked[name] = F.when(_is_not_finite(column, type_), refused).otherwise(column)
    return checked


def finite_fields(records: DataFrame, others: int) -> DataFrame:
    """Return the records, which raise for a number that is infinite as the float of its column.

    So do moments outside of the years 1 to 9999, since Spark takes numbers for seconds. The fields
    are between the key and the `others`.
    """
    # A field with the name of another column is ambiguous, and no query can read it.
    counts = Counter(name.casefold() for name in records.columns)
    fields = records.columns[1 : len(records.columns) - others]
    names = [name for name in fields if counts[name.casefold()] == 1]
    words = "{name} has a number beyond the range of its type"
    return records.withColumns(finite(records, names, words) | _in_known_years(records, names))


def _in_known_years(records: DataFrame, names: Sequence[str]) -> dict[str, Column]:
    """Return the columns of moments, by their names."""
    checked = {}
    for name in names:
        if (type_ := records.schema[name].dataType) == TimestampType():
            column = F.col(f"`{name}`")
            refused = F.raise_error(
                f"{name} is not in the years 1 to 9999. A number counts as seconds since 1970: "
                "make it a BIGINT, and a time of it by timestamp_micros or timestamp_millis"
            ).cast(type_)
            is_known = F.unix_micros(column).between(_YEAR_1_US, _YEAR_10000_US - 1)
            checked[name] = F.when(~is_known, refused).otherwise(column)
    return checked


def _has_floats(type_: DataType) -> bool:
    """Whether a value of a type may have a float in it."""
    match type_:
        case FloatType() | DoubleType():
            return True
        case ArrayType(elementType=inner) | MapType(valueType=inner):
            return _has_floats(inner)
        case StructType(fields=fields):
            return any(_has_floats(field.dataType) for field in fields)
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
                if _has_floats(field.dataType):
                    found = found | _is_not_finite(column[field.name], field.dataType)
            return found
    return F.isnan(column) | (F.abs(column) == _INFINITE)

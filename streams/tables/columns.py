"""The columns of a table, from a DDL schema as in Spark: their Arrow types, and how JSON is read.

sqlglot is imported late: loading it takes a quarter of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
from msgspec import Meta

from kafka_pipeline.common.pipelines.history import RecordPart

if TYPE_CHECKING:
    from sqlglot import exp

TIMESTAMP = pa.timestamp("us", "UTC")
DELETED = "__deleted"
"""The column of changes that says whether a row is the deletion of its key."""

_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=`]")
_MOST_DIGITS = 38
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
"""The largest number of 32 bits: Arrow would make infinity of a larger one."""


class ColumnsError(ValueError):
    """A schema is wrong; `str(error)` says why, as a sentence without its end."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table: first those of JSON values, then those of the records themselves.

    `row` is the type by which msgspec reads a value, and `of_values` the same as an Arrow type.
    A table into which rows are upserted has a `key`. `key_row` is the type by which msgspec reads
    the key of a deletion; `None` if the whole key of a record is the only column of `key`.
    """

    of_values: pa.StructType
    row: Any
    of_records: tuple[pa.Field, ...]
    key: tuple[str, ...] = ()
    key_row: Any = None

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([*self.of_values.fields, *self.of_records])

    @property
    def of_changes(self) -> pa.Schema:
        """All columns of rows that wait for a commit; with a key, the last one is `DELETED`.

        Deletions are null in all columns but those of the key.
        """
        if not self.key:
            return self.schema
        nullable = [field.with_nullable(True) for field in self.schema]
        return pa.schema([*nullable, pa.field(DELETED, pa.bool_())])

    def keyed(self, key: Sequence[str]) -> Columns:
        """Return the columns with a key. Raises `ColumnsError`.

        The record that deletes a row has only a key, so that has all columns of the table's key.
        """
        if DELETED in self.schema.names:
            raise ColumnsError(f'column "{DELETED}" has a name that the engine needs')
        if len({*key}) < len(key):
            raise ColumnsError("a column is given twice")
        parts = {field.name: field for field in self.of_records}
        fields = {field.name: field for field in self.of_values.fields}
        if len(key) == 1 and key[0] in parts and parts[key[0]].type == pa.string():
            # The only part of a record that may be null, and is text.
            of_records = tuple(each.with_nullable(each.name != key[0]) for each in self.of_records)
            return replace(self, of_records=of_records, key=tuple(key))
        for name in key:
            if name in parts:
                raise ColumnsError(
                    f'column "{name}" is of record_columns: a key is either the column of the '
                    "record's key alone, or columns of the schema"
                )
            if name not in fields:
                raise ColumnsError(f'"{name}" is not a column')
            if fields[name].nullable:
                raise ColumnsError(f'column "{name}" must be NOT NULL')
            if pa.types.is_nested(fields[name].type) or pa.types.is_floating(fields[name].type):
                raise ColumnsError(f'column "{name}" is of a type that cannot be a key')
        row = _read_as("Key", {name: self.row.__annotations__[name] for name in key})
        alone = row.__annotations__[key[0]]
        return replace(self, key=tuple(key), key_row=alone | row if len(key) == 1 else row)


@dataclass(frozen=True, slots=True)
class _Type:
    arrow: pa.DataType
    json: Any


def _integer(bits: int, arrow: pa.DataType) -> _Type:
    limit = 2 ** (bits - 1)
    return _Type(arrow, Annotated[int, Meta(ge=-limit, le=limit - 1)])


_SIMPLE: Mapping[str, _Type] = {
    "TINYINT": _integer(8, pa.int8()),
    "SMALLINT": _integer(16, pa.int16()),
    "INT": _integer(32, pa.int32()),
    "BIGINT": _integer(64, pa.int64()),
    "FLOAT": _Type(pa.float32(), Annotated[float, Meta(ge=-_LARGEST_FLOAT, le=_LARGEST_FLOAT)]),
    "DOUBLE": _Type(pa.float64(), float),
    "BOOLEAN": _Type(pa.bool_(), bool),
    "TEXT": _Type(pa.string(), str),
    "BINARY": _Type(pa.binary(), bytes),
    "DATE": _Type(pa.date32(), date),
    # What Spark calls TIMESTAMP has a time zone.
    "TIMESTAMPTZ": _Type(TIMESTAMP, Annotated[datetime, Meta(tz=True)]),
    "TIMESTAMPNTZ": _Type(pa.timestamp("us"), Annotated[datetime, Meta(tz=False)]),
}
"""The types without parameters, by sqlglot's names."""

_OF_RECORDS: Mapping[RecordPart, pa.DataType] = {
    "key": pa.string(),
    "timestamp": TIMESTAMP,
    "partition": pa.int32(),
    "offset": pa.int64(),
}


def columns_of(ddl: str, of_records: Mapping[RecordPart, str]) -> Columns:
    """Return the columns of a DDL schema, and those that are named for parts of records.

    Raises `ColumnsError`.
    """
    of_values, row = _struct(_definitions(ddl), "Row")
    added = tuple(
        pa.field(of_records[part], type_, nullable=part == "key")
        for part, type_ in _OF_RECORDS.items()
        if part in of_records
    )
    columns = Columns(of_values, row, added)
    _require_names(columns.schema.names)
    return columns


def _definitions(ddl: str) -> list[exp.Expression]:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        created = parse_one(f"CREATE TABLE t (\n{ddl}\n)", read="spark")
    except SqlglotError:
        raise ColumnsError("it is not a list of columns and types") from None
    is_plain = isinstance(created, exp.Create) and isinstance(created.this, exp.Schema)
    if not is_plain or created.args.get("properties"):
        raise ColumnsError("it is not a list of columns and types")
    found: list[exp.Expression] = created.this.expressions
    return found


def _struct(definitions: list[exp.Expression], name: str) -> tuple[pa.StructType, Any]:
    from sqlglot import exp

    fields: list[pa.Field] = []
    keys: dict[str, Any] = {}
    for each in definitions:
        kind = each.args.get("kind")
        if not isinstance(each, exp.ColumnDef) or not isinstance(kind, exp.DataType):
            raise ColumnsError(f'"{each.sql("spark")}" is not a column with a type')
        rules = [constraint.args["kind"] for constraint in each.args.get("constraints") or ()]
        if not all(isinstance(rule, exp.NotNullColumnConstraint) for rule in rules):
            raise ColumnsError(f'column "{each.name}" has more than a type and NOT NULL')
        is_required = any(not rule.args.get("allow_null") for rule in rules)
        type_ = _type(kind, each.name)
        fields.append(pa.field(each.name, type_.arrow, nullable=not is_required))
        keys[each.name] = type_.json if is_required else NotRequired[type_.json | None]
    _require_names([field.name for field in fields])
    return pa.struct(fields), _read_as(name, keys)


def _read_as(name: str, keys: Mapping[str, Any]) -> Any:
    """Return the type by which msgspec reads an object with these keys."""
    # Otherwise, it finds no names with other characters than ASCII: msgspec/msgspec#1126.
    msgspec.json.encode([*keys])
    return TypedDict(name, dict(keys))  # type: ignore[operator]


def _type(found: exp.DataType, column: str) -> _Type:
    kind = found.this.name
    if kind in _SIMPLE and not found.expressions:
        return _SIMPLE[kind]
    sizes, make = _NESTED.get(kind, ((), _decimal))
    if len(found.expressions) not in sizes:
        raise _unknown(column)
    return make(found, column)


def _decimal(found: exp.DataType, column: str) -> _Type:
    sizes = [int(each.name) for each in found.expressions]
    precision, scale = [*sizes, *(10, 0)[len(sizes) :]]
    if not 1 <= precision <= _MOST_DIGITS or not 0 <= scale <= precision:
        raise _unknown(column)
    return _Type(pa.decimal128(precision, scale), Decimal)


def _array(found: exp.DataType, column: str) -> _Type:
    (item,) = (_type(each, column) for each in found.expressions)
    return _Type(pa.list_(item.arrow), list[item.json | None])  # type: ignore[name-defined]


def _map(found: exp.DataType, column: str) -> _Type:
    key, value = (_type(each, column) for each in found.expressions)
    if key.json is not str:
        raise ColumnsError(f'column "{column}": keys of a MAP are of the type STRING, as in JSON')
    type_ = pa.map_(key.arrow, value.arrow)
    return _Type(type_, dict[str, value.json | None])  # type: ignore[name-defined]


def _nested_struct(found: exp.DataType, column: str) -> _Type:
    return _Type(*_struct(found.expressions, column))


_NESTED: Mapping[str, tuple[Container[int], Callable[[exp.DataType, str], _Type]]] = {
    "DECIMAL": (range(3), _decimal),
    "ARRAY": (range(1, 2), _array),
    "MAP": (range(2, 3), _map),
    "STRUCT": (range(1, 10_000), _nested_struct),
}
"""The types with parameters, with how many they may have."""


def _unknown(column: str) -> ColumnsError:
    return ColumnsError(f'the type of column "{column}" is not one that tables have')


def _require_names(names: list[str]) -> None:
    if not names:
        raise ColumnsError("it has no columns")
    seen = set()
    for name in names:
        if _FORBIDDEN.search(name):
            raise ColumnsError(f'column "{name}" has a character that tables cannot have')
        if name.lower() in seen:
            raise ColumnsError(f'column "{name}" is given twice')
        seen.add(name.lower())

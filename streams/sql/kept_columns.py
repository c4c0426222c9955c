"""The columns of rows that a caller keeps, as Spark and as Arrow have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from kafka_pipeline.streams.sql.java_objects import items
from kafka_pipeline.streams.sql.plan import type_of
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.spec import QueryError


def kept_types(columns: Iterable[pa.Field]) -> pa.Schema:
    """Return the types of columns that are kept, all of which may be null.

    Raises `QueryError` for a type that has no encoding.
    """
    rows = pa.schema([column.with_nullable(True) for column in columns])
    try:
        RowCodec(rows)
    except TypeError as error:
        raise QueryError(f"its rows cannot be kept: {error}") from error
    return rows


def described(columns: Iterable[Any]) -> list[str]:
    """Return the names and types of columns of Spark's."""
    return [f"{column.name()} {type_of(column)}" for column in columns]


def require_same_types(rows: Any, kept: Mapping[str, Any], where: str) -> None:
    """Raise `QueryError` for a column whose type Arrow cannot carry to a store and back.

    `rows` is a plan over what is kept, and `kept` has the columns by their names there. `where`
    says below what the type can be changed.
    """
    given = {str(column.name()): column for column in items(rows.output())}
    for name, column in kept.items():
        wanted = type_of(column)
        if type_of(given[name]) != wanted:
            raise QueryError(
                f"{column.name()} is of the type {wanted}, which cannot be kept: cast it below "
                f"{where}, or leave it out"
            )

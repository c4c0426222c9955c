"""Columns whose values divide a table into folders: the types and the values that they can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import TableFormat

_MOST_NAME_BYTES = 255
"""The most of a folder's name in file systems. It is `column=value`, each percent-encoded."""

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

_REFUSED: Mapping[TableFormat, Iterable[tuple[Callable[[pa.DataType], bool], str]]] = {
    "delta": (
        # delta-rs 1.6 writes -0.01 as "0.-1", with which nobody can read the table any more.
        (pa.types.is_decimal, "a DECIMAL, of which delta-rs cannot write negative ones"),
        (pa.types.is_binary, "BINARY, which delta-rs writes as other bytes"),
        (pa.types.is_floating, "a FLOAT or DOUBLE, of which equal ones may differ"),
    ),
    # PyIceberg 0.12 writes rows with -0.0 and 0.0 into the folders of both.
    "iceberg": ((pa.types.is_floating, "a FLOAT or DOUBLE, of which equal ones may differ"),),
}


def column_problem(format_: TableFormat, columns: Iterable[pa.Field]) -> str | None:
    """Return why a column cannot divide a table; `None` if all can."""
    for column in columns:
        if pa.types.is_nested(column.type):
            return f'column "{column.name}" has several values'
        for is_type, what in _REFUSED.get(format_, ()):
            if is_type(column.type):
                return f'column "{column.name}" is {what}'
    return None


def first_misfit(
    rows: pa.RecordBatch, partition_by: Iterable[str], *, null_is_empty: bool
) -> tuple[int, str]:
    """Return the index of the first row whose folder cannot be made, and why; see `Table.misfit`.

    With `null_is_empty`, the format cannot tell an empty string from null.
    """
    found = len(rows), ""
    for name in partition_by:
        column = rows.column(name)
        if not pa.types.is_string(column.type):
            continue
        problems = {
            text: problem
            for text in column.unique().to_pylist()
            if (problem := _problem(name, text, null_is_empty=null_is_empty))
        }
        if problems:
            texts = column.to_pylist()
            index = next(index for index, text in enumerate(texts) if text in problems)
            if index < found[0]:
                problem = problems[texts[index]]
                found = (
                    index,
                    f'the value does not fit column "{name}" of partition_by: it {problem}',
                )
    return found


def _problem(name: str, text: str | None, *, null_is_empty: bool) -> str:
    if text is None:
        return ""
    if null_is_empty and text in ("", _NULL_FOLDER):
        return "would be read as null"
    if len(quote(f"{name}{text}", safe="")) + 1 > _MOST_NAME_BYTES:
        return f"has more than the {_MOST_NAME_BYTES} bytes of a folder's name"
    return ""

"""Converts batches of records to Arrow tables, and tables to batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.common.record_batch import KafkaHeaders
from kafka_pipeline.streams.engine.time_limit import unit_advice
from kafka_pipeline.streams.errors import InvalidTimestampError, StreamsError
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.json_fields import JsonFields, read_fields
from kafka_pipeline.streams.sql.large_exponents import count_small
from kafka_pipeline.streams.sql.spec import VISIBLE_FROM, VISIBLE_UNTIL
from kafka_pipeline.streams.sql.strict_json import count_right

MOMENT = pa.timestamp("us", tz="UTC")
"""The type of timestamps."""
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def schema_of(format_: Format) -> pa.Schema:
    """Return the types of all columns of records."""
    text = pa.binary() if format_ == "binary" else pa.string()
    return pa.schema(
        [
            ("key", text),
            ("value", text),
            ("timestamp", MOMENT),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("headers", HEADERS),
        ]
    )


def lookup_schema(format_: Format) -> pa.Schema:
    """Return the types of a record of a topic that a table follows."""
    records = schema_of(format_)
    return pa.schema([records.field(name) for name in ("key", "value", "timestamp")])


def versions_schema(format_: Format) -> pa.Schema:
    """Return the types of a version of a row of a table with a history."""
    records = lookup_schema(format_)
    time = records.field("timestamp").type
    return pa.schema([*records, (VISIBLE_FROM, time), (VISIBLE_UNTIL, time)])


def table_of(
    batch: Batch,
    partition: int,
    columns: Iterable[str],
    format_: Format,
    fields: JsonFields | None = None,
    *,
    is_lenient: bool = False,
    decimals: frozenset[str] = frozenset(),
) -> tuple[pa.Table, str]:
    """Return the records before the first that is not as its format says, and what is wrong there.

    That is one that should be text and is not UTF-8 or, unless this `is_lenient`, that should be
    JSON and is not an object; or one with a large exponent in a field of `decimals`. The table has
    only these `columns`; others are not looked at. It has the used ones of the `fields` in place of
    `value`, if they can be read as Spark reads them. The reason is empty if all records are in the
    table.
    """
    schema = schema_of(format_)
    parsed = None
    if fields is not None and "value" in columns and len(batch):
        parsed = read_fields(batch.values, fields.schema)
        if parsed is not None:
            parsed = parsed.select(fields.used)
            columns = [name for name in columns if name != "value"]
    wanted = [schema.field(name) for name in columns]
    size, reason = len(batch), ""
    texts: dict[str, pa.Array] = {}
    if format_ != "binary":
        for name in ("key", "value"):
            if name in columns:
                texts[name] = _text(batch.keys if name == "key" else batch.values, size)
                if len(texts[name]) < size:
                    size, reason = len(texts[name]), f"the {name} is not UTF-8"
    if format_ == "json" and "value" in texts and not is_lenient:
        right, wrong = count_right(batch.values[:size])
        if wrong:
            size, reason = right, wrong
    if decimals and "value" in texts:
        small, wrong = count_small(batch.values[:size], decimals)
        if wrong:
            size, reason = small, wrong
    part = batch if size == len(batch) else batch.head(size)
    arrays = [
        texts[field.name].slice(0, size)
        if field.name in texts
        else _array(part, field.name, field.type, partition)
        for field in wanted
    ]
    if parsed is not None:
        wanted += parsed.schema
        arrays += parsed.slice(0, size).columns
    return pa.Table.from_arrays(arrays, schema=pa.schema(wanted)), reason


def batch_of(table: pa.Table) -> Batch:
    """Return the records of an output. Raises `StreamsError` if a record has no timestamp."""
    return Batch(
        binary_items(table["key"]) if "key" in table.column_names else [None] * len(table),
        binary_items(table["value"]),
        times_of(table["timestamp"]),
        header_items(table["headers"]) if "headers" in table.column_names else None,
    )


def times_of(timestamps: pa.ChunkedArray) -> list[int]:
    """Return the timestamps of results. Raises `StreamsError` if one is null."""
    if timestamps.null_count:
        raise StreamsError("the query gives a record whose timestamp is null")
    times: list[int] = timestamps.to_numpy().tolist()
    return times


def has_items(type_: pa.DataType) -> bool:
    """Whether values have arrays or maps."""
    if pa.types.is_struct(type_):
        return any(has_items(field.type) for field in type_)
    return bool(pa.types.is_list(type_) or pa.types.is_map(type_))


def completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with all columns of a schema, and no others; missing ones are null."""
    given = {*table.column_names}
    columns = [
        table[field.name] if field.name in given else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def with_items(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with other items in a column of this name, of the same type."""
    return table.set_column(table.column_names.index(name), table.schema.field(name), column)


def binary_items(column: pa.ChunkedArray) -> list[bytes | None]:
    """Return the items of a binary column; four times as fast as `to_pylist`."""
    items: list[bytes | None] = []
    for chunk in column.chunks:
        if not len(chunk):
            continue
        _, ends, data = chunk.buffers()
        offsets = memoryview(ends).cast("i")[chunk.offset : chunk.offset + len(chunk) + 1].tolist()
        content = b""
        if data is not None:
            # Of a slice, copy its own part only: many slices may share a buffer.
            start, end = offsets[0], offsets[-1]
            content = data.slice(start, end - start).to_pybytes()
            offsets = [offset - start for offset in offsets] if start else offsets
        cut: list[bytes | None] = [content[at:to] for at, to in pairwise(offsets)]
        if chunk.null_count:
            valid = chunk.is_valid().to_pylist()
            cut = [item if is_valid else None for item, is_valid in zip(cut, valid, strict=True)]
        items += cut
    return items


def header_array(headers: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Return headers as a column."""
    rows = [
        None if not each else [{"key": key, "value": value} for key, value in each]
        for each in headers
    ]
    return pa.array(rows, HEADERS)


def header_items(column: pa.ChunkedArray) -> list[KafkaHeaders] | None:
    """Return the headers of a column; `None` if no record has any."""
    if column.null_count == len(column):
        return None
    return [
        None if each is None else [(header["key"], header["value"]) for header in each]
        for each in column.to_pylist()
    ]


def is_utf8(item: bytes | None) -> bool:
    """Whether bytes are UTF-8; null is."""
    try:
        (item or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def moments(times: Sequence[int | None]) -> pa.Array:
    """Return times in ms as a column of TIMESTAMPs, which have microseconds.

    Raises `InvalidTimestampError` for a time after the last one that a TIMESTAMP can be.
    """
    try:
        return pa.array(times, pa.timestamp("ms", tz="UTC")).cast(MOMENT)
    except pa.ArrowInvalid:
        latest = max(time for time in times if time is not None)
        last = f"after the year 294246, the last one that a TIMESTAMP can have{unit_advice(latest)}"
        raise InvalidTimestampError(
            f"the timestamp {latest} is {last}", shown=f"the timestamp of the record is {last}"
        ) from None


def moments_at(times_ms: npt.NDArray[np.int64], type_: pa.DataType = MOMENT) -> pa.Array:
    """Return times in ms, none of them too late, as a column of this type, in microseconds."""
    return pa.Array.from_buffers(type_, len(times_ms), [None, pa.py_buffer(times_ms * 1000)])


def times_at(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return a column of TIMESTAMPs without nulls as times in ms."""
    return np.asarray(column).view(np.int64) // 1000


def _text(items: Sequence[bytes | None], size: int) -> pa.Array:
    """Return the first `size` items as a column, up to the first one that is not UTF-8."""
    binary = pa.array(items if size == len(items) else items[:size], pa.binary())
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        end = next(index for index in range(size) if not is_utf8(items[index]))
        return binary.slice(0, end).cast(pa.string())


def _array(batch: Batch, name: str, type_: pa.DataType, partition: int) -> pa.Array:
    match name:
        case "key":
            return pa.array(batch.keys, type_)
        case "value":
            return pa.array(batch.values, type_)
        case "timestamp":
            return moments(items_of(batch.timestamps))
        case "partition":
            return pa.array([partition] * len(batch), type_)
        case "offset":
            return pa.array(batch.offsets, type_) if batch.offsets else pa.nulls(len(batch), type_)
    return pa.nulls(len(batch), type_) if batch.headers is None else header_array(batch.headers)

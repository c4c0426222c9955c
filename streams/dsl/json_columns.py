"""Reads fields of JSON as columns, without making a dict of each record.

Arrow's reader takes a schema, so the types are guessed from a few records first. What it reads must
be exactly what `serdes.json` reads. Where that is not sure, the records are decoded in Python,
which also finds the ones that are not JSON:

- Arrow reads a stream of objects. Each record must be one of them, neither more nor less.
- Arrow reads NaN and infinities, nests without a limit, and does not check UTF-8.
- Arrow reads a whole number as a float where the schema says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.arrow_json import FEWEST_RECORDS, joined_objects, read_objects
from kafka_pipeline.streams.dsl.columns import Column
from kafka_pipeline.streams.errors import SerializationError

Path = tuple[str, ...]

_SAMPLE = 32
_MOST_SKIPPED = 64
_TYPES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
}


class JsonColumn(Column):
    """JSON values of a topic; single fields can be read without decoding the rest."""

    def __init__(
        self,
        raw: Sequence[bytes | None],
        reader: JsonReader,
        read: Mapping[str, Column] | None = None,
    ) -> None:
        super().__init__(size=len(raw))
        self._raw = raw
        self._reader = reader
        self._read = read or {}

    def expect(self, fields: Collection[Path]) -> None:
        if self._items is None and not {name for name, *_ in fields} <= self._read.keys():
            table = self._reader.read(self._raw, fields)
            if table is not None:
                self._read = {name: Column(array=each) for name, each in table.items()}

    def to_pylist(self) -> list[Any]:
        if self._items is None:
            decode = self._reader.decode
            self._items = [None if item is None else decode(item) for item in self._raw]
        return super().to_pylist()

    @property
    def is_null(self) -> Sequence[bool]:
        if self._items is not None:
            return super().is_null
        # An item that is `null` in JSON is not an object, and not read by Arrow.
        return [item is None for item in self._raw] if self._read else super().is_null

    def _make_field(self, name: str) -> Column:
        found = self._read.get(name)
        return super()._make_field(name) if found is None else found

    def selected(self, kept: Sequence[bool]) -> Column:
        read = {name: column.selected(kept) for name, column in self._read.items()}
        column = JsonColumn(list(compress(self._raw, kept)), self._reader, read)
        if self._items is not None:
            column._items = list(compress(self._items, kept))
        return column


class JsonReader:
    """Reads the fields of one source. It remembers their types, and backs off where it fails."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self.decode = decode
        self._types: dict[Path, pa.DataType] = {}
        self._skipped = 0
        self._to_skip = 0

    def column(self, raw: Sequence[bytes | None]) -> JsonColumn:
        """Return the values of a batch."""
        return JsonColumn(raw, self)

    def read(
        self, raw: Sequence[bytes | None], fields: Collection[Path]
    ) -> Mapping[str, pa.Array] | None:
        """Return the top-level names of fields as columns; `None` if they cannot be read so."""
        if len(raw) < FEWEST_RECORDS:
            return None
        if self._skipped < self._to_skip:
            self._skipped += 1
            return None
        found = self._read(raw, sorted(fields))
        if found is None:
            self._types.clear()
            self._skipped, self._to_skip = 0, min(2 * self._to_skip + 1, _MOST_SKIPPED)
        else:
            self._to_skip = 0
        return found

    def _read(
        self, raw: Sequence[bytes | None], fields: Sequence[Path]
    ) -> Mapping[str, pa.Array] | None:
        joined = joined_objects(raw)
        if joined is None or not (self._types.keys() >= set(fields) or self._guess(raw, fields)):
            return None
        schema = _schema({path: self._types[path] for path in fields})
        if schema is None:
            return None
        try:
            table = read_objects(joined, schema)
        except pa.ArrowException:
            return None
        if len(table) != len(raw):
            return None
        columns = {name: table[name].combine_chunks() for name in schema.names}
        floats = [path for path in fields if self._types[path] == pa.float64()]
        if any(_may_have_ints(columns, path, joined) for path in floats):
            return None
        return columns

    def _guess(self, raw: Sequence[bytes | None], fields: Sequence[Path]) -> bool:
        """Find the types in a sample; return whether all are known, and have columns."""
        step = max(1, len(raw) // _SAMPLE)
        sample = [item for item in islice(raw, 0, None, step) if item is not None]
        try:
            values = [self.decode(item) for item in sample]
        except SerializationError:
            return False
        for path in fields:
            kinds = {type(_at(value, path)) for value in values} - {type(None)}
            if len(kinds) > 1 or not kinds <= _TYPES.keys():
                return False
            self._types[path] = _TYPES[kinds.pop()] if kinds else pa.null()
        return True


def _at(value: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _schema(types: Mapping[Path, pa.DataType]) -> pa.Schema | None:
    """Return the schema of these fields; `None` if one is a part of another."""
    names = {path[0] for path in types}
    fields = []
    for name in sorted(names):
        inner = {path[1:]: kind for path, kind in types.items() if path[0] == name}
        if () in inner:
            if len(inner) > 1:
                return None
            fields.append(pa.field(name, inner[()]))
            continue
        nested = _schema(inner)
        if nested is None:
            return None
        fields.append(pa.field(name, pa.struct(list(nested))))
    return pa.schema(fields)


def _may_have_ints(columns: Mapping[str, pa.Array], path: Path, joined: bytes) -> bool:
    """Return whether a field that was read as floats may have been a whole number."""
    column = columns[path[0]]
    for name in path[1:]:
        column = pc.struct_field(column, name)
    if not pc.any(pc.equal(column, pc.trunc(column))).as_py():
        return False
    if b"\\" in joined:
        return True  # the name of the field may be written in another way
    quoted = re.escape(path[-1].encode())
    return re.search(rb'"%s"\s*:\s*-?[0-9]+\s*[,}]' % quoted, joined) is not None

"""Keeps the values of the rows of a changelog, of which functions see the first and the last one.

There is an entry for each value of a group. Its key has the length of the group's key (4 bytes),
that key, the number of the set of values (2 bytes), the bytes by which values sort (`SortKeys`),
and the value as `RowCodec` writes it. Numbers are big-endian. The entry has the number of rows with
the value, little-endian and signed: the parts of a batch may take a row out before it comes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.sort_keys import SortKeys
from kafka_pipeline.streams.sql.state_shape import Ends, StateShape
from kafka_pipeline.streams.sql.state_stores import VALUES
from kafka_pipeline.streams.stores import KeyValueStore
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import prefix_end


class KeptValues:
    """The values of the groups of a task. One thread at a time."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(VALUES)
        self._sets = [
            _ValueSet(number, field, shape.ends[field.name])
            for number, field in enumerate(shape.values)
        ]

    def changed(self, rows: pa.Table, groups: Groups) -> pa.Table:
        """Change the values as rows of a batch say; return rows with the values at the ends.

        The first row of each group has those. `groups` are the rows as bytes.
        """
        heads = [len(key).to_bytes(4, "big") + key for key in groups.keys]
        for each in self._sets:
            column = rows[each.name].combine_chunks()
            of_row = np.repeat(np.arange(len(rows)), np.asarray(column.value_lengths()))
            *fields, changes = column.flatten().flatten()
            keys = [
                heads[row] + each.number + value
                for row, value in zip(of_row.tolist(), each.encode(fields), strict=True)
            ]
            self._change(keys, changes.to_pylist())
            place, field = rows.column_names.index(each.name), rows.schema.field(each.name)
            rows = rows.set_column(place, field, self._current(each, field.type, heads))
        return rows

    def _change(self, keys: Sequence[bytes], changes: Sequence[int]) -> None:
        """Change the numbers of rows with these keys, which may repeat."""
        net = dict[bytes, int]()
        for key, change in zip(keys, changes, strict=True):
            net[key] = net.get(key, 0) + change
        changed = {key: change for key, change in net.items() if change}
        written: Changes = {}
        stored = self._store.get_all(changed)
        for (key, change), before in zip(changed.items(), stored, strict=True):
            now = _count(before) + change
            size = now.bit_length() // 8 + 1
            written[key] = now.to_bytes(size, "little", signed=True) if now else None
        self._store.put_serialized(written)

    def _current(self, each: _ValueSet, type_: pa.DataType, heads: Sequence[bytes]) -> pa.Array:
        """Return lists of the values at the ends of each group, in the first one of its rows."""
        found, ends, seen = list[bytes](), [0], set[bytes]()
        for head in heads:
            if head not in seen:
                seen.add(head)
                found += self._at_ends(each, head + each.number)
            ends.append(len(found))
        columns = [column.combine_chunks() for column in each.codec.decode(found).columns]
        structs = pa.StructArray.from_arrays(
            [*columns, pa.array(np.ones(len(found), np.int64))], fields=list(type_.value_type)
        )
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type_)

    def _at_ends(self, each: _ValueSet, prefix: bytes) -> Iterator[bytes]:
        """Yield the first value of a group, the last one, or both."""
        scans = []
        if each.ends != "last":
            scans.append(self._store.prefix_scan(prefix, bytes))
        if each.ends != "first":
            scans.append(self._store.reverse_range(prefix, prefix_end(prefix)))
        for scan in scans:
            with closing(scan) as entries:
                key = next((key for key, stored in entries if _count(stored) > 0), None)
            if key is not None:
                yield each.value_in(key, len(prefix))


class _ValueSet:
    """How the values of one column of rows are kept."""

    def __init__(self, number: int, field: pa.Field, ends: Ends) -> None:
        self.name, self.ends = field.name, ends
        self.number = number.to_bytes(2, "big")
        fields = list(field.type.value_type)[:-1]
        self.codec = RowCodec(pa.schema(fields))
        self._sorting = SortKeys(fields[-1].type)

    def encode(self, fields: Sequence[pa.Array]) -> list[bytes]:
        """Return the bytes of values in a key; they sort by the last field."""
        rows = self.codec.encode(pa.Table.from_arrays([*fields], schema=self.codec.schema))
        return [a + b for a, b in zip(self._sorting.of(fields[-1]), rows, strict=True)]

    def value_in(self, key: bytes, start: int) -> bytes:
        """Return the value as the codec has it, from a key whose first bytes name the set."""
        return key[self._sorting.end(key, start) :]


def _count(stored: bytes | None) -> int:
    return 0 if stored is None else int.from_bytes(stored, "little", signed=True)

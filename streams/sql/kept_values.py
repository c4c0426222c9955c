"""Keeps the values of the rows of a changelog, for functions that a row cannot be taken out of.

There is an entry for each value of a group. Its key has the length of the group's key (4 bytes),
that key, the number of the set of values (2 bytes), the bytes by which values sort (`SortKeys`) if
functions see the first or last one, and the value as `RowCodec` writes it. Numbers are big-endian.
The entry has the number of rows with the value, little-endian and signed: the parts of a batch may
take a row out before it comes in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.kept_distinct import lists_of
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.sort_keys import SortKeys
from kafka_pipeline.streams.sql.state_shape import Reading, StateShape
from kafka_pipeline.streams.sql.state_stores import VALUES
from kafka_pipeline.streams.stores import KeyValueStore
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import prefix_end


class KeptValues:
    """The values of the groups of a task. One thread at a time."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(VALUES)
        self._sets = [
            _ValueSet(number, field, shape.readings[field.name])
            for number, field in enumerate(shape.values)
        ]

    def changed(self, rows: pa.Table, groups: Groups) -> pa.Table:
        """Change the values as rows of a batch say; return rows with those that functions see.

        If these are at the ends, the first row of each group has them. `groups` are the rows as
        bytes.
        """
        heads = [*map(_head, groups.keys)]
        for each in self._sets:
            column = rows[each.name].combine_chunks()
            of_row = np.repeat(np.arange(len(rows)), np.asarray(column.value_lengths()))
            *fields, changes = column.flatten().flatten()
            keys = [
                heads[row] + each.number + value
                for row, value in zip(of_row.tolist(), each.encode(fields), strict=True)
            ]
            signs = self._change(keys, changes.to_pylist())
            if each.reading == "changes":
                column = lists_of(column.type, fields, signs, of_row, len(rows))
            else:
                column = self._at_ends(each, column.type, heads)
            place, field = rows.column_names.index(each.name), rows.schema.field(each.name)
            rows = rows.set_column(place, field, column)
        return rows

    def has_some(self, key: bytes) -> bool:
        """Whether there are values of the group with this key."""
        with closing(self._store.prefix_scan(_head(key), bytes)) as entries:
            return next(entries, None) is not None

    def _change(self, keys: Sequence[bytes], changes: Sequence[int]) -> npt.NDArray[np.int64]:
        """Change the numbers of rows with these keys, which may repeat.

        Returns 1 at the first place of a key that gets rows, -1 of one that has none any more, and
        0 elsewhere.
        """
        first, net = dict[bytes, int](), dict[bytes, int]()
        for place, (key, change) in enumerate(zip(keys, changes, strict=True)):
            first.setdefault(key, place)
            net[key] = net.get(key, 0) + change
        changed = {key: change for key, change in net.items() if change}
        signs, written = np.zeros(len(keys), np.int64), Changes()
        stored = self._store.get_all(changed)
        for (key, change), entry in zip(changed.items(), stored, strict=True):
            before = _count(entry)
            now = before + change
            size = now.bit_length() // 8 + 1
            signs[first[key]] = (now > 0) - (before > 0)
            written[key] = now.to_bytes(size, "little", signed=True) if now else None
        self._store.put_serialized(written)
        return signs

    def _at_ends(self, each: _ValueSet, type_: pa.DataType, heads: Sequence[bytes]) -> pa.Array:
        """Return lists of the values at the ends of each group, in the first one of its rows."""
        found, ends, seen = list[bytes](), [0], set[bytes]()
        for head in heads:
            if head not in seen:
                seen.add(head)
                found += self._read(each, head + each.number)
            ends.append(len(found))
        columns = [column.combine_chunks() for column in each.codec.decode(found).columns]
        structs = pa.StructArray.from_arrays(
            [*columns, pa.array(np.ones(len(found), np.int64))], fields=list(type_.value_type)
        )
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type_)

    def _read(self, each: _ValueSet, prefix: bytes) -> Iterator[bytes]:
        """Yield the first value of a group, the last one, or both."""
        scans = []
        if each.reading != "last":
            scans.append(self._store.prefix_scan(prefix, bytes))
        if each.reading != "first":
            scans.append(self._store.reverse_range(prefix, prefix_end(prefix)))
        for scan in scans:
            with closing(scan) as entries:
                key = next((key for key, stored in entries if _count(stored) > 0), None)
            if key is not None:
                yield each.value_in(key, len(prefix))


class _ValueSet:
    """How the values of one column of rows are kept."""

    def __init__(self, number: int, field: pa.Field, reading: Reading) -> None:
        self.name, self.reading = field.name, reading
        self.number = number.to_bytes(2, "big")
        fields = list(field.type.value_type)[:-1]
        self.codec = RowCodec(pa.schema(fields))
        self._sorting = None if reading == "changes" else SortKeys(fields[-1].type)

    def encode(self, fields: Sequence[pa.Array]) -> list[bytes]:
        """Return the bytes of values in a key, which sort by the last field if that is needed."""
        rows = self.codec.encode(pa.Table.from_arrays([*fields], schema=self.codec.schema))
        if self._sorting is None:
            return rows
        return [a + b for a, b in zip(self._sorting.of(fields[-1]), rows, strict=True)]

    def value_in(self, key: bytes, start: int) -> bytes:
        """Return the value as the codec has it, from a key whose first bytes name the set."""
        assert self._sorting is not None, "functions see the ends"
        return key[self._sorting.end(key, start) :]


def _head(key: bytes) -> bytes:
    return len(key).to_bytes(4, "big") + key


def _count(stored: bytes | None) -> int:
    return 0 if stored is None else int.from_bytes(stored, "little", signed=True)

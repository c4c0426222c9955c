"""Keeps the values that functions with DISTINCT have seen, as keys of a store.

A key has the length of the group's key (4 bytes), that key, a byte with the number of the set of
values, and the value as `RowCodec` writes it. The entry's bytes are a little-endian number, whose
bits say which functions of the set have seen the value. So a record costs the same in any group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.columns import with_items
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.state_shape import StateShape
from kafka_pipeline.streams.sql.state_stores import DISTINCT
from kafka_pipeline.streams.stores import KeyValueStore, WindowStore
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import window_key

_Indexes = npt.NDArray[np.int64]
_Bits = npt.NDArray[np.int64]

MOST_VALUES = 2_000
"""How many values of a set a row may have that goes through a topic."""

_MOST_BYTES = 500_000
"""How many bytes of values a row may have there, by their mean, so that it fits a record."""


class KeptDistinct(ABC):
    """The values that the groups of a task have seen. One thread at a time."""

    _store: KeyValueStore[bytes, bytes] | WindowStore[bytes, bytes]

    def __init__(self, shape: StateShape) -> None:
        self._names = shape.values.names
        structs = [list(field.type.value_type) for field in shape.values]
        self._codecs = [RowCodec(pa.schema(fields[:-1])) for fields in structs]

    @abstractmethod
    def _stored(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return the entries with these keys."""

    @abstractmethod
    def _ends(self, groups: Groups) -> Sequence[bytes]:
        """Return how the keys of the entries of groups end."""

    def unseen(self, rows: pa.Table, groups: Groups) -> pa.Table:
        """Return rows of a batch with what is new to their groups; the store has seen all then.

        A value keeps the bits of those functions that see it for the first time, and a value
        without one is left out. `groups` are the rows as bytes.
        """
        heads = [len(key).to_bytes(4, "big") + key for key in groups.keys]
        ends = self._ends(groups)
        for number, (name, codec) in enumerate(zip(self._names, self._codecs, strict=True)):
            column = rows[name].combine_chunks()
            found = column.flatten()
            if not len(found):
                continue
            of_row = np.repeat(np.arange(len(rows)), np.asarray(column.value_lengths()))
            *fields, bits = found.flatten()
            encoded = codec.encode(pa.Table.from_arrays(fields, schema=codec.schema))
            starts = [head + bytes([number]) for head in heads]
            keys = [
                starts[row] + value + ends[row]
                for row, value in zip(of_row.tolist(), encoded, strict=True)
            ]
            new = self._see(keys, np.asarray(bits).tolist())
            rows = with_items(rows, name, lists_of(column.type, fields, new, of_row, len(rows)))
        return rows

    def _see(self, keys: Sequence[bytes], bits: Sequence[int]) -> _Bits:
        """Have the store see the bits of keys, which may repeat; return those that are new."""
        seen, changes, new = dict[bytes, int](), dict[bytes, int](), []
        for key, wanted, stored in zip(keys, bits, self._stored(keys), strict=True):
            before = seen.get(key)
            if before is None:
                before = 0 if stored is None else int.from_bytes(stored, "little")
            if found := wanted & ~before:
                changes[key] = seen[key] = before | found
            new.append(found)
        written: Changes = {
            key: each.to_bytes((each.bit_length() + 7) // 8, "little")
            for key, each in changes.items()
        }
        self._store.put_serialized(written)
        return np.array(new, np.int64)


class DistinctOfTable(KeptDistinct):
    """Of groups without windows: entries stay, as their groups do."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        super().__init__(shape)
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(DISTINCT)

    def _stored(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return self._store.get_all(keys)

    def _ends(self, groups: Groups) -> Sequence[bytes]:
        return [b""] * len(groups.keys)


class DistinctOfWindows(KeptDistinct):
    """Of groups with windows: entries expire with these."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        super().__init__(shape)
        self._store: WindowStore[bytes, bytes] = context.get_state_store(DISTINCT)

    def _stored(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return self._store.get_all_serialized(keys)

    def _ends(self, groups: Groups) -> Sequence[bytes]:
        return [window_key(b"", start) for start in groups.starts]


def in_parts(rows: pa.Table, shape: StateShape) -> tuple[pa.Table, _Indexes]:
    """Return rows with at most `MOST_VALUES` values of each set, and their indexes in `rows`.

    They have fewer if values are long. A row with more becomes several. Only the first one has its
    buffers, and the others have those of a group without records.
    """
    columns = {name: rows[name].combine_chunks() for name in shape.values.names}
    lengths = {name: np.asarray(column.value_lengths()) for name, column in columns.items()}
    means = (each.nbytes / max(len(each.flatten()), 1) for each in columns.values())
    most = min(MOST_VALUES, max(1, int(_MOST_BYTES / max(sum(means), 1))))
    parts = np.ones(len(rows), np.int64)
    for each in lengths.values():
        parts = np.maximum(parts, -(-each // most))
    of_row = np.repeat(np.arange(len(rows)), parts)
    part = np.arange(len(of_row)) - np.repeat(np.cumsum(parts) - parts, parts)
    buffers = pa.concat_tables([rows.select(shape.buffers.names), shape.empty])
    buffers = buffers.take(pa.array(np.where(part == 0, of_row, len(rows))))
    made = {name: rows[name].take(pa.array(of_row)) for name in shape.groups.names}
    made |= dict(zip(shape.buffers.names, buffers.columns, strict=True))
    for name, column in columns.items():
        sizes = np.clip(lengths[name][of_row] - part * most, 0, most)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        made[name] = pa.ListArray.from_arrays(pa.array(offsets), column.flatten(), column.type)
    return pa.table(made, schema=shape.rows), of_row


def lists_of(
    type_: pa.DataType, fields: Sequence[pa.Array], bits: _Bits, of_row: _Indexes, size: int
) -> pa.Array:
    """Return lists of the values that have bits, each in the list of its row."""
    structs = pa.StructArray.from_arrays([*fields, pa.array(bits)], fields=list(type_.value_type))
    counts = np.bincount(of_row[bits != 0], minlength=size)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    kept = structs.filter(pa.array(bits != 0))
    return pa.ListArray.from_arrays(pa.array(offsets), kept, type_)

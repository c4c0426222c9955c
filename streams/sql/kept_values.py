"""Keeps the values of the rows of a changelog, for functions that a row cannot be taken out of.

The keys of a set of values begin with a prefix: the length of the group's key (4 bytes), that key,
and the number of the set (2 bytes). Numbers are big-endian. How functions read the set says which
entries it has:

- `changes`, `list`, `set` and `versions`: one for each value;
- `first`, `last` and `ends`: also one under the prefix, with the number of the values, the size of
  the first one's key after the prefix (4 bytes each), that, and the last one's;
- `moments`: one under the prefix, with the sums that `Moments` keeps.

The key of a value is the prefix, the bytes by which values sort if functions need an order and
there is one (`SortKeys`), and the value as `RowCodec` writes it. The entry has the number of rows
with the value, little-endian and signed: the parts of a batch may take a row out before it comes
in.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.sql.columns import with_items
from kafka_pipeline.streams.sql.group_codec import Groups, empty_lists
from kafka_pipeline.streams.sql.kept_distinct import lists_of
from kafka_pipeline.streams.sql.moments import Moments, products_for
from kafka_pipeline.streams.sql.row_codec import RowCodec
from kafka_pipeline.streams.sql.sort_keys import SortKeys, has_order
from kafka_pipeline.streams.sql.state_shape import LIST, Reading, StateShape
from kafka_pipeline.streams.sql.state_stores import VALUES
from kafka_pipeline.streams.stores import KeyValueStore, StoreIterator
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.layout import prefix_end

_ENDS = struct.Struct(">II")

_Store = KeyValueStore[bytes, bytes]


class KeptValues:
    """The values of the groups of a task. One thread at a time."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        self._store: _Store = context.get_state_store(VALUES)
        self._sets = [
            _SETS[shape.readings[each.name]](number, each, shape, self._store)
            for number, each in enumerate(shape.values)
        ]

    def changed(self, rows: pa.Table, groups: Groups) -> pa.Table:
        """Change the values as rows of a batch say; return rows with what functions see.

        The first row of each group has the values at the ends, and the buffers that are made of
        all values. `groups` are the rows as bytes.
        """
        heads = [*map(_head, groups.keys)]
        for each in self._sets:
            rows = each.changed(rows, heads)
        return rows

    def has_some(self, key: bytes) -> bool:
        """Whether there are values of the group with this key."""
        with closing(self._store.prefix_scan(_head(key), bytes)) as entries:
            return next(entries, None) is not None


@dataclass(frozen=True, slots=True)
class _Given:
    """The values in the rows of a batch, in columns: `of_row` are the indexes of their rows."""

    prefixes: Sequence[bytes]
    of_row: npt.NDArray[np.int64]
    fields: Sequence[pa.Array]
    changes: Sequence[int]

    @property
    def first_rows(self) -> dict[bytes, int]:
        """The index of the first row of each group, by its prefix and in the order of the rows."""
        found = dict[bytes, int]()
        for row, prefix in enumerate(self.prefixes):
            found.setdefault(prefix, row)
        return found

    @property
    def of_value(self) -> list[bytes]:
        """The prefix of each value."""
        return [self.prefixes[row] for row in self.of_row.tolist()]


class _ValueSet(ABC):
    """The values of one column of rows."""

    def __init__(self, number: int, column: pa.Field, shape: StateShape, store: _Store) -> None:
        self._name, self._type = column.name, column.type
        self._number = number.to_bytes(2, "big")
        self._fills = shape.fills.get(column.name, {})
        self._empty = shape.empty
        self._store = store

    def changed(self, rows: pa.Table, heads: Sequence[bytes]) -> pa.Table:
        """Change the values; return rows with what functions see. See `KeptValues`."""
        column = rows[self._name].combine_chunks()
        of_row = np.repeat(np.arange(len(rows)), np.asarray(column.value_lengths()))
        *fields, changes = column.flatten().flatten()
        prefixes = [head + self._number for head in heads]
        return self._changed(rows, _Given(prefixes, of_row, fields, changes.to_pylist()))

    @abstractmethod
    def _changed(self, rows: pa.Table, given: _Given) -> pa.Table: ...

    def _filled(self, rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
        """Return rows with these buffers, and without the values that they are made of."""
        columns = {**columns, self._name: empty_lists(len(rows), self._type)}
        for name, column in columns.items():
            rows = with_items(rows, name, column)
        return rows


class _Sums(_ValueSet):
    """Values of which only sums are kept."""

    def __init__(self, number: int, column: pa.Field, shape: StateShape, store: _Store) -> None:
        super().__init__(number, column, shape, store)
        self._products = products_for(self._fills.values())

    def _changed(self, rows: pa.Table, given: _Given) -> pa.Table:
        first_rows = given.first_rows
        sums = {
            prefix: Moments(self._products, stored)
            for prefix, stored in zip(first_rows, self._store.get_all(first_rows), strict=True)
        }
        values = zip(*(each.to_pylist() for each in given.fields), strict=True)
        for prefix, value, change in zip(given.of_value, values, given.changes, strict=True):
            sums[prefix].add(value, change)
        self._store.put_serialized({prefix: each.stored() for prefix, each in sums.items()})
        columns = {}
        for name, moment in self._fills.items():
            filled = self._empty[name].to_pylist() * len(rows)
            for prefix, row in first_rows.items():
                filled[row] = sums[prefix].central(moment)
            columns[name] = pa.array(filled, self._empty.schema.field(name).type)
        return self._filled(rows, columns)


@dataclass(slots=True)
class _Moves:
    """The keys of values, after the prefix, that a group gets and loses."""

    got: list[bytes] = field(default_factory=list)
    lost: set[bytes] = field(default_factory=set)


class ValueEntries(_ValueSet):
    """Values that have an entry each."""

    is_sorted = True

    def __init__(self, number: int, column: pa.Field, shape: StateShape, store: _Store) -> None:
        super().__init__(number, column, shape, store)
        fields = list(column.type.value_type)[:-1]
        self.codec = RowCodec(pa.schema(fields))
        is_sorted = self.is_sorted and has_order(fields[-1].type)
        self._sorting = SortKeys(fields[-1].type) if is_sorted else None

    def _keys(self, given: _Given) -> list[bytes]:
        """Return the keys of values after the prefix."""
        values = pa.Table.from_arrays([*given.fields], schema=self.codec.schema)
        rows = self.codec.encode(values)
        if self._sorting is None:
            return rows
        return [a + b for a, b in zip(self._sorting.of(given.fields[-1]), rows, strict=True)]

    def _value_in(self, key: bytes) -> bytes:
        """Return the value as the codec has it, from a key after the prefix."""
        return key if self._sorting is None else key[self._sorting.end(key, 0) :]

    def change(self, keys: Sequence[bytes], changes: Sequence[int]) -> npt.NDArray[np.int64]:
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

    def _decoded(self, values: Sequence[bytes]) -> list[pa.Array]:
        return [column.combine_chunks() for column in self.codec.decode(values).columns]


class _Changes(ValueEntries):
    """Values of which functions see those that a group gets or loses."""

    is_sorted = False

    def _changed(self, rows: pa.Table, given: _Given) -> pa.Table:
        keys = [a + b for a, b in zip(given.of_value, self._keys(given), strict=True)]
        signs = self.change(keys, given.changes)
        lists = lists_of(self._type, given.fields, signs, given.of_row, len(rows))
        return with_items(rows, self._name, lists)


class _Lists(ValueEntries):
    """Values of which functions see all, in a list, in their order if they have one."""

    repeats = True

    def _changed(self, rows: pa.Table, given: _Given) -> pa.Table:
        keys = [a + b for a, b in zip(given.of_value, self._keys(given), strict=True)]
        first_rows = given.first_rows
        former = {prefix: self.former(prefix) for prefix in first_rows}
        self.change(keys, given.changes)
        found, counts = list[bytes](), list[int]()
        sizes, is_missing = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
        for prefix, row in first_rows.items():
            before, now = former[prefix], [*self._values(prefix)]
            found += before
            found += now
            counts += (len(before), len(now))
            sizes[row], is_missing[row] = len(before) + len(now), False
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        items = self._items(found, counts)
        columns = {}
        for name, what in self._fills.items():
            type_ = self._empty.schema.field(name).type
            columns[name] = pa.array(~is_missing)
            if what == LIST:
                mask = pa.array(is_missing)
                columns[name] = pa.ListArray.from_arrays(offsets, items, type_, mask=mask)
        return self._filled(rows, columns)

    def former(self, prefix: bytes) -> Sequence[bytes]:
        """Return the values before a change that functions see."""
        return ()

    def _items(self, values: Sequence[bytes], counts: Sequence[int]) -> pa.Array:
        """Return values as functions see them; `counts` are those of former ones and others."""
        (items,) = self._decoded(values)
        return items

    def _values(self, prefix: bytes) -> Iterator[bytes]:
        with closing(self._store.prefix_scan(prefix, bytes)) as entries:
            for key, stored in entries:
                times = _count(stored) if self.repeats else _count(stored) > 0
                for _ in range(times):
                    yield self._value_in(key[len(prefix) :])


class _Sets(_Lists):
    """The same without duplicates."""

    repeats = False


class Versions(_Lists):
    """Values of which functions see all, and in front of these all that there were before.

    Each is a struct of whether it is a former one, and others; see `ranked_rows`. The counts of a
    group are two: its former values, and those of now.
    """

    def former(self, prefix: bytes) -> Sequence[bytes]:
        return [*self._values(prefix)]

    def _items(self, values: Sequence[bytes], counts: Sequence[int]) -> pa.Array:
        (items,) = self._decoded(values)
        _, *others = items.flatten()
        is_former = np.repeat(np.arange(len(counts)) % 2 == 0, np.array(counts, np.int64))
        return pa.StructArray.from_arrays(
            [pa.array(is_former, pa.bool_()), *others], fields=list(items.type)
        )


class _Ends(ValueEntries):
    """Values of which functions see the first one, the last one, or both.

    Which these are is kept. So the store looks for another one only if one of them goes, from there
    on: elsewhere, it would pass what RocksDB has left of all values that are gone.
    """

    has_first = has_last = True

    def _changed(self, rows: pa.Table, given: _Given) -> pa.Table:
        moves = self._moves(given)
        first_rows, found, sizes = given.first_rows, list[bytes](), np.zeros(len(rows), np.int64)
        written = Changes()
        for (prefix, row), stored in zip(
            first_rows.items(), self._store.get_all(first_rows), strict=True
        ):
            ends = _KeptEnds.of(stored)
            if prefix in moves:
                ends = self._moved(prefix, ends, moves[prefix])
                written[prefix] = ends.stored()
            if ends.count:
                values = [ends.first] * self.has_first + [ends.last] * self.has_last
                found += map(self._value_in, values)
                sizes[row] = len(values)
        self._store.put_serialized(written)
        ones = pa.array(np.ones(len(found), np.int64))
        structs = pa.StructArray.from_arrays(
            [*self._decoded(found), ones], fields=list(self._type.value_type)
        )
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        return with_items(rows, self._name, pa.ListArray.from_arrays(offsets, structs, self._type))

    def _moves(self, given: _Given) -> Mapping[bytes, _Moves]:
        """Change the values, and return those that groups get and lose, by the prefix."""
        ends, of_value = self._keys(given), given.of_value
        keys = [a + b for a, b in zip(of_value, ends, strict=True)]
        moves = defaultdict[bytes, _Moves](_Moves)
        signs = self.change(keys, given.changes).tolist()
        for prefix, key, sign in zip(of_value, ends, signs, strict=True):
            if sign > 0:
                moves[prefix].got.append(key)
            elif sign < 0:
                moves[prefix].lost.add(key)
        return moves

    def _moved(self, prefix: bytes, ends: _KeptEnds, moves: _Moves) -> _KeptEnds:
        """Return the ends after a change; one that is not read is empty."""
        count = ends.count + len(moves.got) - len(moves.lost)
        if not count:
            return _KeptEnds()
        first = last = b""
        # Without other values, there is nothing to look for, even if all former ones are gone.
        has_others = count > len(moves.got)
        if self.has_first:
            first = min([*moves.got, *([ends.first] if has_others else [])])
            if first in moves.lost:
                high = prefix + min(moves.got) if moves.got else prefix_end(prefix)
                scan = self._store.range(prefix + first + b"\0", high)
                first = _first_present(scan)[len(prefix) :]
        if self.has_last:
            last = max([*moves.got, *([ends.last] if has_others else [])])
            if last in moves.lost:
                low = prefix + max(moves.got, default=b"\0")
                scan = self._store.reverse_range(low, prefix + last)
                last = _first_present(scan)[len(prefix) :]
        return _KeptEnds(count, first, last)


class _Firsts(_Ends):
    has_last = False


class _Lasts(_Ends):
    has_first = False


_SETS: Mapping[Reading, type[_ValueSet]] = {
    "first": _Firsts,
    "last": _Lasts,
    "ends": _Ends,
    "changes": _Changes,
    "list": _Lists,
    "set": _Sets,
    "versions": Versions,
    "moments": _Sums,
}


@dataclass(frozen=True, slots=True)
class _KeptEnds:
    """How many values a group has, and the keys of those at the ends, after the prefix."""

    count: int = 0
    first: bytes = b""
    last: bytes = b""

    @classmethod
    def of(cls, stored: bytes | None) -> _KeptEnds:
        """Read what `stored` returned."""
        if stored is None:
            return cls()
        count, size = _ENDS.unpack_from(stored)
        middle = _ENDS.size + size
        return cls(count, stored[_ENDS.size : middle], stored[middle:])

    def stored(self) -> bytes | None:
        """Return the bytes of the entry; `None` without values."""
        if not self.count:
            return None
        return _ENDS.pack(self.count, len(self.first)) + self.first + self.last


def _first_present(scan: StoreIterator[tuple[bytes, bytes]]) -> bytes:
    """Return the key of the first value that rows have; there is one."""
    with closing(scan) as entries:
        return next(key for key, stored in entries if _count(stored) > 0)


def _head(key: bytes) -> bytes:
    return len(key).to_bytes(4, "big") + key


def _count(stored: bytes | None) -> int:
    return 0 if stored is None else int.from_bytes(stored, "little", signed=True)

"""What a RocksDB store has committed: a snapshot, and the changes that it does not have yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rocksdict import Rdict, RdictIter, ReadOptions

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.bytes_store import Changes, Entry, merged
from kafka_pipeline.streams.stores.committed import CommittedBytes, ReadLimitError, Views

_READ_AT_ONCE = 100
_MOST_DELETED = 1_000_000
"""How many deleted entries RocksDB may have to skip in one step: about 0.1 s."""


class RocksDBView(CommittedBytes):
    """A view of the moment at which it was made; see `CommittedBytes`."""

    def __init__(
        self,
        db: Rdict,
        unwritten: Changes,
        local: Callable[[bytes], bytes],
        bounds: tuple[bytes, bytes],
        views: Views,
        times: tuple[int, int],
        most_entries: int,
        most_s: float,
    ) -> None:
        """Show `unwritten` over what the database has now.

        `local` gives the form of a key in which entries are kept, which `bounds` surround: they
        begin with the first, and come before the second.
        """
        super().__init__(views, times, most_entries, most_s)
        options = ReadOptions()
        options.set_max_skippable_internal_keys(_MOST_DELETED)
        # An iterator shows the moment at which it was made. That of a Snapshot does not (rocksdict
        # 0.3), but its single values do.
        self._cursor: Any = db.iter(options)
        self._snapshot: Any = db.snapshot()
        self._unwritten = unwritten
        self._local = local
        self._data, self._end_of_data = bounds

    def _value(self, key: bytes) -> bytes | None:
        if key in self._unwritten:
            return self._unwritten[key]
        try:
            value: bytes = self._snapshot[self._data + self._local(key)]
        except Exception as error:  # rocksdict raises bare Exceptions
            if str(error) == "key not found":
                return None
            raise StateStoreError(f"the store cannot be read: {error}") from None
        return value

    def _entries(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        local = ((self._local(key), value) for key, value in self._unwritten.items())
        changes = [c for c in local if low <= c[0] and (high is None or c[0] < high)]
        changes.sort(reverse=reverse)
        return merged(self._written(low, high, reverse), iter(changes), reverse)

    def _written(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        """Yield the entries of a range that RocksDB has, without the others."""
        first, end = self._data + low, self._end_of_data if high is None else self._data + high
        while True:
            # All scans share the iterator, so each goes back to its place.
            entries = self._some(first, end, reverse)
            for key, value in entries:
                yield key[len(self._data) :], value
            if len(entries) < _READ_AT_ONCE:
                return
            if reverse:
                end = entries[-1][0]
            else:
                first = entries[-1][0] + b"\x00"

    def _some(self, first: bytes, end: bytes, reverse: bool) -> list[Entry]:
        cursor, entries = self._cursor, list[Entry]()
        if reverse:
            cursor.seek_for_prev(end)
            if cursor.valid() and cursor.key() == end:
                cursor.prev()
        else:
            cursor.seek(first)
        step = cursor.prev if reverse else cursor.next
        while cursor.valid() and len(entries) < _READ_AT_ONCE:
            key = cursor.key()
            if key < first if reverse else key >= end:
                return entries
            entries.append((key, cursor.value()))
            step()
        if len(entries) < _READ_AT_ONCE:
            _require_ok(cursor)
        return entries

    def _release(self) -> None:
        self._cursor = self._snapshot = None


def _require_ok(cursor: RdictIter) -> None:
    """Raise if an iterator ended before the end of its range; the task itself finds damage too."""
    try:
        cursor.status()
    except Exception as error:  # rocksdict raises bare Exceptions
        if "Result incomplete" in str(error):
            raise ReadLimitError from None
        raise StateStoreError(f"the store cannot be read: {error}") from None

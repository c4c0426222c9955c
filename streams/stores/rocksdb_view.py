"""What a RocksDB store has committed: a snapshot, and the changes that it does not have yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rocksdict import ReadOptions, Snapshot

from streams.errors import StateStoreError
from streams.stores.bytes_store import Changes, Entry, merged
from streams.stores.committed import CommittedBytes, Views


class RocksDBView(CommittedBytes):
    """A view of the moment at which it was made; see `CommittedBytes`."""

    def __init__(
        self,
        snapshot: Snapshot,
        unwritten: Changes,
        local: Callable[[bytes], bytes],
        bounds: tuple[bytes, bytes],
        views: Views,
        timestamp: int,
        most_entries: int,
        most_s: float,
    ) -> None:
        """Show `unwritten` over a snapshot, both of one moment.

        `local` gives the form of a key in which entries are kept, which `bounds` surround: they
        begin with the first, and come before the second.
        """
        super().__init__(views, timestamp, most_entries, most_s)
        self._snapshot: Snapshot | None = snapshot
        self._unwritten = unwritten
        self._local = local
        self._data, self._end_of_data = bounds

    def _value(self, key: bytes) -> bytes | None:
        if key in self._unwritten:
            return self._unwritten[key]
        local = self._local(key)
        return next((value for _, value in self._written(local, local + b"\x00", False)), None)

    def _entries(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        changes = {self._local(key): value for key, value in self._unwritten.items()}
        chosen = [key for key in changes if low <= key and (high is None or key < high)]
        chosen.sort(reverse=reverse)
        ordered = ((key, changes[key]) for key in chosen)
        return merged(self._written(low, high, reverse), ordered, reverse)

    def _written(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        # The bound is inside `options`, which must live as long as the iterator.
        options = ReadOptions()
        options.set_iterate_upper_bound(self._end_of_data if high is None else self._data + high)
        assert self._snapshot is not None, "the view is open"
        cursor: Any = None
        try:
            cursor = self._snapshot.iter(options)
            if reverse:
                cursor.seek_to_last()
            else:
                cursor.seek(self._data + low)
            while cursor.valid():
                found = cursor.key()
                if found < self._data + low:
                    return
                yield found[len(self._data) :], cursor.value()
                if reverse:
                    cursor.prev()
                else:
                    cursor.next()
            _require_ok(cursor)
        finally:
            # A traceback keeps its frames, and RocksDB's lock lasts as long as its iterators.
            del cursor

    def _release(self) -> None:
        self._snapshot = None


def _require_ok(cursor: Any) -> None:
    """Raise `StateStoreError` if an iterator ended early; the task itself finds the damage too."""
    try:
        cursor.status()
    except Exception as error:  # rocksdict raises bare Exceptions
        raise StateStoreError(f"the store cannot be read: {error}") from None

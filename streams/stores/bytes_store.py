"""The lowest layer of every store: bytes in byte order, and the open transaction over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from streams.errors import StateStoreError
from streams.stores.iterators import Readers, StoreIterator
from streams.stores.sorted_keys import SortedKeys

SEGMENT_BYTES = 8
NO_TIMESTAMP = -1

Entry: TypeAlias = tuple[bytes, bytes]
Change: TypeAlias = tuple[bytes, bytes | None]
Changes: TypeAlias = dict[bytes, bytes | None]

# What `_undo` has for a key that was not in `uncommitted`.
_ABSENT: Any = object()


class StoreBytes(Protocol):
    """What a store as a processor sees it needs of its bytes; see `BytesStore`."""

    @property
    def max_timestamp(self) -> int: ...
    @property
    def committed_timestamp(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def approximate_num_entries(self) -> int: ...
    def get(self, key: bytes) -> bytes | None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def put(self, key: bytes, value: bytes | None) -> None: ...
    def put_many(self, changes: Changes) -> None: ...
    def scan(
        self, low: bytes, high: bytes | None, reverse: bool = False
    ) -> StoreIterator[Entry]: ...
    def drop_range(self, low: bytes, high: bytes | None) -> None: ...


class BytesStore(ABC):
    """Key-value pairs of bytes that change with a transaction.

    What the open transaction wrote stays in `uncommitted` until `commit`. `savepoint` and `undo`
    take back the writes of one record. One thread uses a store.

    A key has two forms. `get`, `put`, `restore` and `uncommitted` take it as it stands in the
    state topic. Where a store is divided into segments (`segment_of`), `scan` and `drop_range`
    take and give it with the 8 bytes of its segment in front, which is how it is ordered and
    kept: so segments can change their size without a change of the state topic.
    """

    uncommitted: Changes
    """What the open transaction wrote: one record for the state topic per entry; `None` deletes."""

    max_timestamp: int
    """The largest timestamp of a key that was ever written, deleted ones included; -1 = none."""

    committed_timestamp: int
    """`max_timestamp` without the open transaction."""

    generation: int
    """Grows when writes are taken back, or others come in: what was remembered may be wrong."""

    _undo: list[tuple[bytes | Changes, Any]]
    """What `uncommitted` had for a key, or for each key of changes, before they were written."""

    _readers: Readers[Change]
    _order: SortedKeys | None

    def __init__(
        self,
        timestamp_of: Callable[[bytes], int] | None = None,
        segment_of: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Take the time of a key, for `max_timestamp`, and its segment, always of 8 bytes."""
        self._timestamp_of = timestamp_of
        self._segment_of = segment_of
        self._scans: WeakSet[StoreIterator[Entry]] = WeakSet()
        self._closed = False
        self.generation = 0
        self._begin(NO_TIMESTAMP)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or has closed itself since it is damaged."""
        return self._closed

    @property
    @abstractmethod
    def offset(self) -> int | None:
        """Offset of the first state topic record that is not in the store; `None` if it is new."""

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """About how many entries there are, the open transaction included."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key` as the open transaction sees it, or `None`."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what `get` returns for each of the keys."""
        return list(map(self.get, keys))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set `key`, or delete it with `None`, in the open transaction."""
        if self._closed:
            self.require_open()
        if self._readers.open:
            self._readers.read_all()
        uncommitted = self.uncommitted
        former = uncommitted.get(key, _ABSENT)
        self._undo.append((key, former))
        if former is _ABSENT and self._order is not None:
            self._order.add(self._local(key))
        uncommitted[key] = value
        if self._timestamp_of is not None:
            timestamp = self._timestamp_of(key)
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp

    def put_many(self, changes: Changes) -> None:
        """Do what `put` does for each of the changes, which the caller hands over."""
        if self._order is not None or self._timestamp_of is not None:
            for key, value in changes.items():
                self.put(key, value)
            return
        self.require_open()
        if self._readers.open:
            self._readers.read_all()
        self._undo.append((changes, list(map(self.uncommitted.get, changes, repeat(_ABSENT)))))
        self.uncommitted.update(changes)

    def scan(self, low: bytes, high: bytes | None, reverse: bool = False) -> StoreIterator[Entry]:
        """Return the entries with `low <= key < high` in byte order; `None` is no upper end."""
        self.require_open()
        if high is not None and low >= high:
            return StoreIterator(iter(()))
        entries = self._scan_committed(low, high, reverse)
        if self.uncommitted:
            entries = _merged(entries, self._scan_changes(low, high, reverse), reverse)
        scan = StoreIterator(entries)
        self._scans.add(scan)
        return scan

    def savepoint(self) -> None:
        """Forget how to undo what was written so far."""
        if self._undo:
            self._undo = []
            self._saved_timestamp = self.max_timestamp

    def undo(self) -> None:
        """Set the open transaction back to what it was at the last savepoint, or at its begin."""
        self._readers.read_all()
        self.generation += 1
        for keys, formers in reversed(self._undo):
            if isinstance(keys, bytes):
                self._set_back(keys, formers)
            else:
                for key, former in zip(keys, formers, strict=True):
                    self._set_back(key, former)
        self._undo = []
        self.max_timestamp = self._saved_timestamp

    def _set_back(self, key: bytes, former: Any) -> None:
        if former is not _ABSENT:
            self.uncommitted[key] = former
            return
        del self.uncommitted[key]
        if self._order is not None:
            self._order.discard(self._local(key))

    def commit(self, offset: int) -> None:
        """Apply the open transaction; `offset` is that behind its last state topic record."""
        self._apply(self.uncommitted, offset, self.max_timestamp)
        self._begin(self.max_timestamp)

    def rollback(self) -> None:
        """Forget what the open transaction wrote."""
        self.generation += 1
        self._begin(self.committed_timestamp)

    def restore(self, entries: Mapping[bytes, bytes | None], offset: int) -> None:
        """Apply state topic records (`None` deletes), all of them before `offset`.

        Only between transactions, before the first one.
        """
        self.generation += 1
        latest = self.committed_timestamp
        if self._timestamp_of is not None:
            latest = max(map(self._timestamp_of, entries), default=latest)
        latest = max(latest, self.committed_timestamp)
        self._apply(entries, offset, latest)
        self.committed_timestamp = latest
        self.max_timestamp = max(self.max_timestamp, latest)
        self._saved_timestamp = max(self._saved_timestamp, latest)

    @abstractmethod
    def drop_range(self, low: bytes, high: bytes | None) -> None:
        """Forget committed entries with `low <= key < high`, here but not in the state topic.

        For what has expired by `committed_timestamp`: nobody may miss it after a rollback.
        """

    @abstractmethod
    def wipe(self) -> None:
        """Drop the content; the store is as new."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds, with its iterators. What was not committed is gone."""

    @abstractmethod
    def _apply(self, entries: Mapping[bytes, bytes | None], offset: int, timestamp: int) -> None:
        """Write entries, offset and largest timestamp, all or nothing."""

    @abstractmethod
    def _scan_committed(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        """Return the committed entries of a range, as they are now."""

    def require_open(self) -> None:
        """Raise `StateStoreError`, or what has closed the store, unless it is open."""
        if self._closed:
            raise StateStoreError("the store is closed")

    def _begin(self, timestamp: int) -> None:
        """Open a transaction; `timestamp` is the largest that was committed."""
        self.uncommitted = {}
        self._undo = []
        self._readers = Readers()
        self._order = None  # made by the first scan of a transaction: most have none
        self.max_timestamp = self.committed_timestamp = self._saved_timestamp = timestamp

    def _local(self, key: bytes) -> bytes:
        return key if self._segment_of is None else self._segment_of(key) + key

    def _scan_changes(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Change]:
        """Return what the open transaction wrote in a range, as it is now."""
        if self._order is None:
            self._order = SortedKeys(map(self._local, self.uncommitted))
        uncommitted, start = self.uncommitted, 0 if self._segment_of is None else SEGMENT_BYTES
        keys = self._order.between(low, high, reverse)
        return self._readers.read((key, uncommitted[key[start:]]) for key in keys)

    def _close_scans(self) -> None:
        for scan in list(self._scans):
            scan.close()
        self._scans.clear()

    def _end(self) -> None:
        """Forget everything that is in memory: the store is closed."""
        self._closed = True
        self.generation += 1
        self._close_scans()
        self._begin(NO_TIMESTAMP)


def _merged(
    committed: Iterator[Entry], changes: Iterator[Change], reverse: bool
) -> Iterator[Entry]:
    """Yield committed entries with the changes over them; both come in the same order."""
    change = next(changes, None)
    for entry in committed:
        key = entry[0]
        while change is not None and (change[0] > key if reverse else change[0] < key):
            if change[1] is not None:
                yield change[0], change[1]
            change = next(changes, None)
        if change is None or change[0] != key:
            yield entry
    while change is not None:
        if change[1] is not None:
            yield change[0], change[1]
        change = next(changes, None)

"""The lowest layer of every store: bytes in byte order, and the open transaction over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol, TypeAlias
from weakref import WeakSet

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.caches import CacheBudget
from kafka_pipeline.streams.stores.committed import CommittedBytes, Views
from kafka_pipeline.streams.stores.iterators import Readers, StoreIterator
from kafka_pipeline.streams.stores.sorted_keys import SortedKeys

SEGMENT_BYTES = 8
NO_TIMESTAMP = -1

Entry: TypeAlias = tuple[bytes, bytes]
Change: TypeAlias = tuple[bytes, bytes | None]
Changes: TypeAlias = dict[bytes, bytes | None]

# The entry in `_undo` for a key that was not in `uncommitted`.
_ABSENT: Any = object()


class StoreBytes(Protocol):
    """The bytes below a store, as far as a processor's view of the store needs them.

    See `BytesStore`."""

    @property
    def max_timestamp(self) -> int: ...
    @property
    def expiry_time(self) -> int: ...
    @property
    def committed_expiry_time(self) -> int: ...
    @property
    def generation(self) -> int: ...
    def approximate_num_entries(self) -> int: ...
    def get(self, key: bytes) -> bytes | None: ...
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    def put(self, key: bytes, value: bytes | None) -> None: ...
    def put_many(self, changes: Changes, latest: int | None = None) -> None: ...
    def scan(
        self, low: bytes, high: bytes | None, reverse: bool = False
    ) -> StoreIterator[Entry]: ...
    def range(self, low: bytes, high: bytes) -> list[Entry]: ...
    def drop_range(self, low: bytes, high: bytes | None) -> None: ...
    def expect_no_reads(self) -> None: ...


class BytesStore(ABC):
    """Key-value pairs of bytes that change with a transaction.

    Writes of the open transaction stay in `uncommitted` until `commit`. `mark` and `undo` take
    back the writes of one record. Only one thread uses a store; others use `committed`.

    A key has two forms. `get`, `put`, `restore` and `uncommitted` take the key as it is in the
    state topic. If a store is divided into segments (`segment_of`), `scan`, `range` and
    `drop_range` take and return the key with the 8 bytes of its segment in front. Keys are ordered
    and kept in that form, so segments can change their size without a change to the state topic.
    """

    uncommitted: Changes
    """The writes of the open transaction, one state topic record per entry; `None` deletes."""

    max_timestamp: int
    """The largest timestamp of any key ever written, including deleted keys; -1 if none."""

    committed_timestamp: int
    """`max_timestamp` without the open transaction."""

    horizon: int | None = None
    """How far the step is whose time entries expire by; `None` if they do by `max_timestamp`.

    It is set back like a write, but not kept: a step knows its time when it begins."""

    committed_horizon: int | None = None
    """`horizon` without the open transaction."""

    generation: int
    """Grows when writes are undone or come from elsewhere: cached values may then be wrong."""

    _saved_horizon: int | None = None

    _undo: list[tuple[bytes | Changes, Any]]
    """For a key, or for each key of a dict of changes: what `uncommitted` had before the write."""

    _readers: Readers[Change]
    _order: SortedKeys | None

    def __init__(
        self,
        timestamp_of: Callable[[bytes], int] | None = None,
        segment_of: Callable[[bytes], bytes] | None = None,
        caches: CacheBudget | None = None,
    ) -> None:
        """Take functions for a key's time, for `max_timestamp`, and for its segment of 8 bytes.

        `caches` is the budget of those who cache what is in the store, without it one of its own.
        """
        self.caches = caches or CacheBudget()
        self._timestamp_of = timestamp_of
        self._segment_of = segment_of
        self._key_start = 0 if segment_of is None else SEGMENT_BYTES
        self._scans: WeakSet[StoreIterator[Entry]] = WeakSet()
        self._views = Views()
        self._closed = False
        self.generation = 0
        self._begin(NO_TIMESTAMP)

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed, or has closed itself because it is damaged."""
        return self._closed

    @property
    def expiry_time(self) -> int:
        """The time by which entries expire."""
        return self.max_timestamp if self.horizon is None else self.horizon

    @property
    def committed_expiry_time(self) -> int:
        """`expiry_time` without the open transaction."""
        known = self.committed_horizon
        return self.committed_timestamp if known is None else known

    def follow(self, time: int) -> None:
        """Let entries expire by the time of a step, which is `time` now and grows from here on."""
        self.horizon = self.committed_horizon = self._saved_horizon = time

    def go_on(self, time: int) -> None:
        """Go on to a time of the step that the store follows."""
        self.horizon = max(self.expiry_time, time)

    def expect_no_reads(self) -> None:
        """Keep what is written out of caches: the step that writes it remembers it itself."""
        return

    @property
    @abstractmethod
    def offset(self) -> int | None:
        """Offset of the first state topic record that is not in the store; `None` if it is new."""

    def disk_bytes(self) -> int:
        """Return about how many bytes the store has on disk, or is about to write there."""
        return 0

    @abstractmethod
    def approximate_num_entries(self) -> int:
        """Return about how many entries there are, including the open transaction."""

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

    def put_many(self, changes: Changes, latest: int | None = None) -> None:
        """Do what `put` does for each change; the caller must not use `changes` afterwards.

        `latest` is the largest time of the changes, or of the store after them, if it is known.
        """
        self.require_open()
        if self._readers.open:
            self._readers.read_all()
        formers = list(map(self.uncommitted.get, changes, repeat(_ABSENT)))
        self._undo.append((changes, formers))
        if self._order is not None:
            for key, former in zip(changes, formers, strict=True):
                if former is _ABSENT:
                    self._order.add(self._local(key))
        self.uncommitted.update(changes)
        if self._timestamp_of is not None:
            if latest is None:
                latest = max(map(self._timestamp_of, changes), default=NO_TIMESTAMP)
            self.max_timestamp = max(self.max_timestamp, latest)

    def scan(self, low: bytes, high: bytes | None, reverse: bool = False) -> StoreIterator[Entry]:
        """Return the entries with `low <= key < high` in byte order; `None` means no upper end."""
        self.require_open()
        if high is not None and low >= high:
            return StoreIterator(iter(()))
        entries = self._scan_committed(low, high, reverse)
        if self.uncommitted:
            entries = merged(entries, self._scan_changes(low, high, reverse), reverse)
        scan = StoreIterator(entries)
        self._scans.add(scan)
        return scan

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in byte order, each with its key as in the state topic."""
        start = self._key_start
        return ((key[start:], value) for key, value in self.scan(b"", None))

    def time_of(self, key: bytes) -> int:
        """Return the time of a key of the state topic, for `max_timestamp`; -1 if it has none."""
        return NO_TIMESTAMP if self._timestamp_of is None else self._timestamp_of(key)

    def range(self, low: bytes, high: bytes) -> list[Entry]:
        """Return the entries with `low < high` and `low <= key < high`, in byte order, at once.

        That is several times as fast as `scan` for a few entries.
        """
        if self._closed:
            self.require_open()
        entries = self._committed_range(low, high)
        if not self.uncommitted:
            return entries
        changed = self._ordered().range(low, high)
        if not changed:
            return entries
        uncommitted, start = self.uncommitted, self._key_start
        changes = {key: uncommitted[key[start:]] for key in changed}
        if entries:
            changes = dict(sorted({**dict(entries), **changes}.items()))
        return [(key, value) for key, value in changes.items() if value is not None]

    def mark(self) -> None:
        """Set the undo mark: forget how to undo what was written so far."""
        self._saved_horizon = self.horizon
        if self._undo:
            self._undo = []
            self._saved_timestamp = self.max_timestamp

    @property
    def is_at_mark(self) -> bool:
        """Whether nothing was written since the last mark, or since the transaction began."""
        return not self._undo

    def undo(self) -> None:
        """Set the open transaction back to the last mark, or to its beginning."""
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
        self.horizon = self._saved_horizon

    def _set_back(self, key: bytes, former: Any) -> None:
        if former is not _ABSENT:
            self.uncommitted[key] = former
            return
        del self.uncommitted[key]
        if self._order is not None:
            self._order.discard(self._local(key))

    def commit(self, offset: int) -> None:
        """Apply the open transaction; `offset` is the one after its last state topic record."""
        with self._views.changing:
            self._apply(self.uncommitted, offset, self.max_timestamp)
            self._begin(self.max_timestamp)

    def rollback(self) -> None:
        """Forget what the open transaction wrote."""
        self.generation += 1
        self.horizon = self.committed_horizon
        self._begin(self.committed_timestamp)

    def restore(self, entries: Mapping[bytes, bytes | None], offset: int) -> None:
        """Apply state topic records (`None` deletes), all of them before `offset`.

        Call this only while no transaction is open, before the first one.
        """
        self.generation += 1
        latest = self.committed_timestamp
        if self._timestamp_of is not None:
            latest = max(map(self._timestamp_of, entries), default=latest)
        latest = max(latest, self.committed_timestamp)
        with self._views.changing:
            self._apply(entries, offset, latest)
            self.committed_timestamp = latest
        self.max_timestamp = max(self.max_timestamp, latest)
        self._saved_timestamp = max(self._saved_timestamp, latest)

    def committed(self, most_entries: int, most_s: float) -> CommittedBytes:
        """Return a view of what is committed, for any thread; it reads at most `most_entries`.

        Raises `StateStoreError` once the store closes. Closing a store ends its views, so they
        never delay a task that moves.
        """
        self._views.enter()
        try:
            return self._view(most_entries, most_s)
        except BaseException:
            self._views.leave()
            raise

    @abstractmethod
    def _view(self, most_entries: int, most_s: float) -> CommittedBytes:
        """Return a view, which was counted already."""

    @abstractmethod
    def drop_range(self, low: bytes, high: bytes | None) -> None:
        """Forget committed entries with `low <= key < high`, here but not in the state topic.

        Only for entries that have expired by `committed_timestamp`: a rollback must not need them.
        """

    @abstractmethod
    def wipe(self) -> None:
        """Drop the content; the store is then like new."""

    @abstractmethod
    def close(self) -> None:
        """Release the store's resources, and close its iterators. Uncommitted writes are lost."""

    @abstractmethod
    def _apply(self, entries: Mapping[bytes, bytes | None], offset: int, timestamp: int) -> None:
        """Write entries, offset and largest timestamp, all or nothing."""

    @abstractmethod
    def _scan_committed(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Entry]:
        """Return the committed entries of a range, as they are now."""

    @abstractmethod
    def _committed_range(self, low: bytes, high: bytes) -> list[Entry]:
        """Return the committed entries of a range."""

    def require_open(self) -> None:
        """Raise `StateStoreError`, or the error that closed it, unless the store is open."""
        if self._closed:
            raise StateStoreError("the store is closed")

    def _begin(self, timestamp: int) -> None:
        """Open a transaction; `timestamp` is the largest that was committed."""
        self.uncommitted = {}
        self._undo = []
        self._readers = Readers()
        self._order = None  # made by the first scan of a transaction: most have none
        self.max_timestamp = self.committed_timestamp = self._saved_timestamp = timestamp
        self.committed_horizon = self._saved_horizon = self.horizon

    def _local(self, key: bytes) -> bytes:
        return key if self._segment_of is None else self._segment_of(key) + key

    def _scan_changes(self, low: bytes, high: bytes | None, reverse: bool) -> Iterator[Change]:
        """Return the writes of the open transaction in a range, as they are now."""
        uncommitted, start = self.uncommitted, self._key_start
        keys = self._ordered().between(low, high, reverse)
        return self._readers.read((key, uncommitted[key[start:]]) for key in keys)

    def _ordered(self) -> SortedKeys:
        """Return the keys that the open transaction wrote, with their segments."""
        if self._order is None:
            self._order = SortedKeys(map(self._local, self.uncommitted))
        return self._order

    def _close_scans(self) -> None:
        for scan in list(self._scans):
            scan.close()
        self._scans.clear()

    def _end(self) -> None:
        """Mark the store as closed, and forget everything that is in memory."""
        self._closed = True
        self.generation += 1
        self._close_scans()
        self._begin(NO_TIMESTAMP)


def merged(committed: Iterator[Entry], changes: Iterator[Change], reverse: bool) -> Iterator[Entry]:
    """Yield committed entries merged with the changes to them; both come in the same order."""
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

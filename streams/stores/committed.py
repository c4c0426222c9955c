"""The committed content of a store, for threads other than the one that the store belongs to."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import NoReturn, Self

from kafka_pipeline.streams.errors import StateStoreError
from kafka_pipeline.streams.stores.iterators import StoreIterator

END_WAIT_S = 5.0
"""How long a store that closes waits for views. Each ends at its next entry, in microseconds."""


class ReadLimitError(Exception):
    """A view has read as many entries, or for as long, as it may. The caller asks for less."""


class Views:
    """The open views of a store, and the lock under which its committed content changes.

    The store holds `changing` while it changes what is committed: once per transaction, never per
    record. A view holds it for the moment in which it begins.
    """

    def __init__(self) -> None:
        self.changing = threading.Condition()
        self._open = 0
        self._has_ended = False

    def enter(self) -> None:
        """Count a view. Raises `StateStoreError` once the store closes."""
        with self.changing:
            self.require_open()
            self._open += 1

    def leave(self) -> None:
        """Count a view that holds nothing of the store any more."""
        with self.changing:
            self._open -= 1
            self.changing.notify_all()

    def require_open(self) -> None:
        """Raise `StateStoreError` once the store closes."""
        if self._has_ended:
            raise StateStoreError("the store is closed")

    def end(self) -> None:
        """End all views, and wait for them: RocksDB's lock lasts as long as its iterators."""
        with self.changing:
            self._has_ended = True
            self.changing.wait_for(lambda: not self._open, END_WAIT_S)

    def begin(self) -> None:
        """Allow views again."""
        self._has_ended = False


class OnlyRead(ABC):
    """The half of `StoreBytes` that writes, where all writing is refused."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Refuse to write."""
        self._refuse()

    def put_many(self, changes: dict[bytes, bytes | None], latest: int | None = None) -> None:
        """Refuse to write."""
        self._refuse()

    def drop_range(self, low: bytes, high: bytes | None) -> None:
        """Refuse to forget entries."""
        self._refuse()

    def expect_no_reads(self) -> None:
        """Do nothing: there is no cache."""
        return

    @abstractmethod
    def _refuse(self) -> NoReturn:
        """Raise `StateStoreError`."""


class CommittedBytes(OnlyRead):
    """A view of what a store has committed: `StoreBytes` that can only be read.

    Use it in a `with` statement, on one thread. Nothing of the open transaction is in it. Methods
    raise `StateStoreError` once the store closes, and `ReadLimitError` at the limit.
    """

    generation = 0

    def __init__(
        self, views: Views, times: tuple[int, int], most_entries: int, most_s: float
    ) -> None:
        """Allow `most_entries` to be read, for `most_s`.

        `times` are the largest timestamp committed, and the time by which entries have expired.
        """
        self.max_timestamp, self.expiry_time = times
        self.committed_expiry_time = self.expiry_time
        self._views = views
        self._left = most_entries
        self._until_s = time.monotonic() + most_s
        self._scans: list[Generator[tuple[bytes, bytes]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for scan in self._scans:
            scan.close()
        self._scans.clear()
        self._release()
        self._views.leave()

    def get(self, key: bytes) -> bytes | None:
        """Return the committed value of `key`, or `None`."""
        self._spend()
        return self._value(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what `get` returns for each of the keys."""
        return list(map(self.get, keys))

    def scan(
        self, low: bytes, high: bytes | None, reverse: bool = False
    ) -> StoreIterator[tuple[bytes, bytes]]:
        """Return the entries with `low <= key < high` in byte order; `None` means no upper end."""
        if high is not None and low >= high:
            return StoreIterator(iter(()))
        scan = self._counted(lambda: self._entries(low, high, reverse))
        self._scans.append(scan)
        return StoreIterator(scan)

    def range(self, low: bytes, high: bytes) -> list[tuple[bytes, bytes]]:
        """Return the entries with `low <= key < high`, in byte order, at once."""
        return list(self.scan(low, high))

    def approximate_num_entries(self) -> int:
        """Refuse: a view does not count entries."""
        self._refuse()

    @abstractmethod
    def _value(self, key: bytes) -> bytes | None:
        """Return the committed value of `key`."""

    @abstractmethod
    def _entries(
        self, low: bytes, high: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return the committed entries of a range."""

    @abstractmethod
    def _release(self) -> None:
        """Release what the view holds of the store."""

    def _counted(
        self, begin: Callable[[], Iterator[tuple[bytes, bytes]]]
    ) -> Generator[tuple[bytes, bytes]]:
        self._views.require_open()
        entries = begin()
        try:
            for entry in entries:
                self._spend()
                yield entry
        finally:
            # A traceback keeps its frames, and RocksDB's lock lasts as long as its iterators.
            del entries

    def _spend(self) -> None:
        self._views.require_open()
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._until_s:
            raise ReadLimitError

    def _refuse(self) -> NoReturn:
        raise StateStoreError("a view of what is committed can only be read, entry by entry")

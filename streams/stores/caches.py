"""Caches of stores, which share a budget of memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from threading import Lock
from weakref import WeakSet

CACHED_BYTES = 64 * 1024 * 1024

ENTRY_BYTES = 150
"""About how much a cached entry takes in addition to the bytes of its key and value."""

_WORTH_MEASURING = 0.75
"""A cache that takes more than this part of what it claims is emptied, and else claims less."""


class CacheBudget:
    """Limits how much memory the caches of several stores take together. Thread-safe.

    If they take more, the largest cache is emptied.
    """

    def __init__(self, limit_bytes: int = CACHED_BYTES) -> None:
        """Start with no caches."""
        self.limit_bytes = limit_bytes
        self._lock = Lock()
        self._caches: WeakSet[StoreCache] = WeakSet()

    def cache(self) -> EntryCache:
        """Return a new cache within this budget."""
        return EntryCache(self)

    def add(self, cache: StoreCache) -> None:
        """Count a cache from now on."""
        with self._lock:
            self._caches.add(cache)

    def keep(self) -> None:
        """Empty as many caches as the budget demands, the largest first."""
        with self._lock:
            while sum(cache.size for cache in self._caches) > self.limit_bytes:
                largest = max(self._caches, key=lambda cache: cache.size)
                # An entry that was overwritten has been counted each time.
                claimed, size = largest.size, largest.measure()
                if _WORTH_MEASURING * claimed < size:
                    largest.clear()
                else:
                    largest.size = size


class StoreCache(ABC):
    """Cached entries of one store.

    Like the store, the cache is used by one thread; `clear` and `measure` may be called by any.
    """

    def __init__(self, budget: CacheBudget) -> None:
        """Start empty, within a budget."""
        self.size = 0
        """About how many bytes the cache takes; the estimate may be too high."""
        self._budget = budget
        self._unchecked = 0
        budget.add(self)

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def measure(self) -> int:
        """Return about how many bytes the cache takes."""

    def grow(self, size: int) -> None:
        """Count bytes that were added."""
        self.size += size
        self._unchecked += size
        # Not each time that a key is read, since `keep` takes the lock of all stores.
        if self._unchecked > self._budget.limit_bytes // 1000:
            self._unchecked = 0
            self._budget.keep()


class EntryCache(StoreCache):
    """The cached entries of a store by their keys."""

    def __init__(self, budget: CacheBudget) -> None:
        """Start empty; made by `CacheBudget.cache`."""
        self.entries: dict[bytes, bytes | None] = {}
        """For reading only; `None` means that the store does not have the key."""
        self.is_read_back = True
        """Whether entries that were written are likely to be read again."""
        super().__init__(budget)

    def written(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Remember entries that were written, or forget what they had before."""
        if self.is_read_back:
            self.add(entries)
        elif self.entries:
            for key in entries:
                self.entries.pop(key, None)

    def add(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Remember entries."""
        size = _size_of(list(entries), list(entries.values()))
        self.entries.update(entries)
        self.grow(size)

    def add_one(self, key: bytes, value: bytes | None) -> None:
        """Remember an entry."""
        self.entries[key] = value
        self.grow(ENTRY_BYTES + len(key) + len(value or b""))

    def clear(self) -> None:
        self.entries.clear()
        self.size = 0

    def measure(self) -> int:
        """Return about how many bytes the cache takes; needs about 50 ns per entry."""
        return _size_of(list(self.entries), list(self.entries.values()))


def _size_of(keys: list[bytes], values: list[bytes | None]) -> int:
    return ENTRY_BYTES * len(keys) + sum(map(len, keys)) + sum(map(len, filter(None, values)))

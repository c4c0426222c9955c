"""Resources that the stores of a process share, so that use does not grow with their number."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from weakref import WeakSet

from rocksdict import BlockBasedOptions, Cache, Options, WriteBufferManager

CACHED_BYTES = 64 * 1024 * 1024
BLOCK_CACHE_BYTES = 64 * 1024 * 1024
WRITE_BUFFER_BYTES = 128 * 1024 * 1024
OPEN_FILES = 100
"""How many files one store may have open; a file usually has 64 MB."""

_ENTRY_BYTES = 150
"""About how much a cache entry takes in addition to the bytes of its key and value."""
_ARENA_BYTES = 64 * 1024
"""How much RocksDB allocates for the first entry that a store writes; the default is 1 MB."""
_FILTER_BITS = 10
"""The filter's bits per key; about 1 % of the lookups of missing keys still read a file."""


class CacheBudget:
    """Limits how much memory the caches of several stores take together. Thread-safe.

    If they take more, the largest cache is emptied.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Start with no caches."""
        self.limit_bytes = limit_bytes
        self._lock = Lock()
        self._caches: WeakSet[EntryCache] = WeakSet()

    def cache(self) -> EntryCache:
        """Return a new cache within this budget."""
        cache = EntryCache(self)
        with self._lock:
            self._caches.add(cache)
        return cache

    def keep(self) -> None:
        """Empty as many caches as the budget demands, the largest first."""
        with self._lock:
            while sum(cache.size for cache in self._caches) > self.limit_bytes:
                largest = max(self._caches, key=lambda cache: cache.size)
                # An entry that was overwritten has been counted each time.
                claimed, size = largest.size, largest.measure()
                if 2 * size > claimed:
                    largest.clear()
                else:
                    largest.size = size


class EntryCache:
    """The cached entries of one store.

    Like the store, the cache is used by one thread; `clear` and `measure` may be called by any.
    """

    def __init__(self, budget: CacheBudget) -> None:
        """Start empty; made by `CacheBudget.cache`."""
        self.entries: dict[bytes, bytes | None] = {}
        """For reading only; `None` means that the store does not have the key."""
        self.size = 0
        """About how many bytes the cache takes; the estimate may be too high."""
        self._budget = budget
        self._unchecked = 0

    def add(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Remember entries."""
        size = _size_of(list(entries), list(entries.values()))
        self.entries.update(entries)
        self._grow(size)

    def add_one(self, key: bytes, value: bytes | None) -> None:
        """Remember an entry."""
        self.entries[key] = value
        self._grow(_ENTRY_BYTES + len(key) + len(value or b""))

    def clear(self) -> None:
        """Forget everything."""
        self.entries.clear()
        self.size = 0

    def measure(self) -> int:
        """Return about how many bytes the cache takes; needs about 50 ns per entry."""
        return _size_of(list(self.entries), list(self.entries.values()))

    def _grow(self, size: int) -> None:
        self.size += size
        self._unchecked += size
        # Not each time that a key is read, since `keep` takes the lock of all stores.
        if self._unchecked > self._budget.limit_bytes // 1000:
            self._unchecked = 0
            self._budget.keep()


class StoreResources:
    """The memory that the stores of a process share.

    It has three parts: RocksDB's block cache, with the indexes and filters of all files; RocksDB's
    write buffers; and the cache of entries on Python's side. If all write buffers together are too
    large, the store that writes next flushes its own.
    """

    def __init__(self, cached_bytes: int = CACHED_BYTES) -> None:
        """Allocate nothing yet; `cached_bytes` is for the cache of entries."""
        self.caches = CacheBudget(cached_bytes)
        self._block_cache = Cache(BLOCK_CACHE_BYTES)
        self._write_buffers = WriteBufferManager(WRITE_BUFFER_BYTES, False)

    def options(self) -> Options:
        """Return the options for opening one more database, which is made if missing."""
        tables = BlockBasedOptions()
        tables.set_block_cache(self._block_cache)
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_bloom_filter(_FILTER_BITS, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_keep_log_file_num(1)
        options.set_block_based_table_factory(tables)
        options.set_write_buffer_manager(self._write_buffers)
        options.set_arena_block_size(_ARENA_BYTES)
        options.set_max_open_files(OPEN_FILES)
        return options


def _size_of(keys: list[bytes], values: list[bytes | None]) -> int:
    return _ENTRY_BYTES * len(keys) + sum(map(len, keys)) + sum(map(len, filter(None, values)))

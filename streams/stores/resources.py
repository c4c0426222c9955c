"""Resources that the stores of a process share, so that use does not grow with their number."""

from __future__ import annotations

from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, Options, WriteBufferManager

from kafka_pipeline.streams.stores.caches import CACHED_BYTES, CacheBudget

BLOCK_CACHE_BYTES = 64 * 1024 * 1024
WRITE_BUFFER_BYTES = 128 * 1024 * 1024
OPEN_FILES = 100
"""How many files one store may have open; a file usually has 64 MB."""

_LOG_BYTES = 1024 * 1024
"""When RocksDB begins a new file of its messages, and deletes the former one. Each write of its
files to disk adds 6 kB, so the file of a busy store would grow by several MB a day."""

_ARENA_BYTES = 64 * 1024
"""How much RocksDB allocates for the first entry that a store writes; the default is 1 MB."""
_FILTER_BITS = 10
"""The filter's bits per key; about 1 % of the lookups of missing keys still read a file."""


class StoreResources:
    """The memory that the stores of a process share.

    It has three parts: RocksDB's block cache, with the indexes and filters of all files; RocksDB's
    write buffers; and the cache of entries on Python's side. If all write buffers together are too
    large, the store that writes next flushes its own.
    """

    def __init__(self, cached_bytes: int = CACHED_BYTES) -> None:
        """Allocate nothing yet; `cached_bytes` is for the cache of entries."""
        self.caches = CacheBudget(cached_bytes)
        self.open_folders: set[Path] = set()
        """The folders of the databases that are open."""
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
        options.set_max_log_file_size(_LOG_BYTES)
        options.set_block_based_table_factory(tables)
        options.set_write_buffer_manager(self._write_buffers)
        options.set_arena_block_size(_ARENA_BYTES)
        options.set_max_open_files(OPEN_FILES)
        return options

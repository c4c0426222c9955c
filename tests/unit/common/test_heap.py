"""Memory that is free in the C library's heap goes back to the system."""

from __future__ import annotations

import ctypes
import time

import pytest

from kafka_pipeline.common.monitoring.memory import resident_bytes
from kafka_pipeline.common.process.heap import trimmed_heap

_LIBC = ctypes.CDLL(None)
_BLOCK_BYTES = 100_000
"""Below the size from which glibc maps each block by itself."""
_BLOCKS = 500
TIMEOUT_S = 60.0

pytestmark = pytest.mark.skipif(
    not hasattr(_LIBC, "malloc_trim"), reason="the C library is not glibc"
)


def _take_and_free() -> int:
    """Take 50 MB and free them, but for the last block; return that."""
    _LIBC.malloc.restype = ctypes.c_void_p
    blocks = [_LIBC.malloc(ctypes.c_size_t(_BLOCK_BYTES)) for _ in range(_BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, _BLOCK_BYTES)
    for block in blocks[:-1]:
        _LIBC.free(ctypes.c_void_p(block))
    return int(blocks[-1])


def test_free_memory_below_what_is_in_use_goes_back() -> None:
    last = _take_and_free()
    held = resident_bytes()
    try:
        with trimmed_heap(interval_s=0.01):
            deadline_s = time.monotonic() + TIMEOUT_S
            while resident_bytes() > held - _BLOCK_BYTES * _BLOCKS // 2:
                assert time.monotonic() < deadline_s, "the memory is still held"
                time.sleep(0.01)
    finally:
        _LIBC.free(ctypes.c_void_p(last))

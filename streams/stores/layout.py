"""The layout of keys with a time in a state topic, and the ends of ranges in byte order.

Windows and sessions have the layout of Kafka Streams' changelogs: the key, then its times as 8
bytes, big-endian. Keys have any length, so in byte order other keys may come between two times of
one key. Code that reads a range must therefore compare the keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

TIME_BYTES = 8
WINDOW_BYTES = 12
SESSION_BYTES = 16
MAX_TIME = 2**63 - 1

_times_of_window = struct.Struct(">QI").pack
_times_of_session = struct.Struct(">QQ").pack
pack_time = struct.Struct(">Q").pack
pack_signed_time = struct.Struct(">q").pack


def window_key(key: bytes, start: int, number: int = 0) -> bytes:
    """Return the key of a window; `number` tells duplicates apart."""
    return key + _times_of_window(start, number)


def window_start(stored: bytes) -> int:
    """Return the start of a window, or any number if the key is too short to have one."""
    return int.from_bytes(stored[-12:-4], "big")


def session_key(key: bytes, start: int, end: int) -> bytes:
    """Return the key of a session; sessions of one key are in the order of their ends."""
    return key + _times_of_session(end, start)


def session_end(stored: bytes) -> int:
    """Return the end of a session, or any number if the key is too short to have one."""
    return int.from_bytes(stored[-16:-8], "big")


def session_start(stored: bytes) -> int:
    """Return the start of a session."""
    return int.from_bytes(stored[-8:], "big")


def version_key(key: bytes, timestamp: int) -> bytes:
    """Return the key of a version."""
    return key + pack_time(timestamp)


def version_time(stored: bytes) -> int:
    """Return the time from which a version is valid."""
    return int.from_bytes(stored[-8:], "big")


def segment_of(timestamp_of: Callable[[bytes], int], segment_ms: int) -> Callable[[bytes], bytes]:
    """Return the function from a key to the 8 bytes of its segment."""
    return lambda key: pack_time(timestamp_of(key) // segment_ms)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that begin with `prefix`; `None` if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def range_end(key: bytes) -> bytes:
    """Return a bound after all times of all keys up to and including `key`.

    Times begin with a byte below 0x80, so the last of them may belong to a prefix of `key`.
    """
    return max(key[:length] + b"\x80" for length in range(len(key) + 1))

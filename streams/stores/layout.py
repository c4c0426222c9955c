"""The layout of keys with a time in a state topic, and the ends of ranges in byte order.

Windows and sessions have the layout of Kafka Streams' changelogs: the key, then its times as 8
bytes, big-endian. Keys have any length, so in byte order other keys may come between two times of
one key. Code that reads a range must therefore compare the keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from kafka_pipeline.common.pipelines.spreading import EntryTime, Spreading

TIME_BYTES = 8
WINDOW_BYTES = 12
SESSION_BYTES = 16
MAX_TIME = 2**63 - 1
_LENGTH_BYTES = 4
_MARK = 2**32 - 1

NO_KEY = b"kafka-pipeline: no key" + bytes(SESSION_BYTES)
"""A key that no entry has, and whose time is 0 in any layout: its deletion changes nothing."""

pack_window = struct.Struct(">QI").pack
_times_of_session = struct.Struct(">QQ").pack
pack_time = struct.Struct(">Q").pack
pack_signed_time = struct.Struct(">q").pack


def signed_time(stored: bytes) -> int:
    """Return the time with which a value with its time begins."""
    return int.from_bytes(stored[:TIME_BYTES], "big", signed=True)


def window_key(key: bytes, start: int, number: int = 0) -> bytes:
    """Return the key of a window; `number` tells duplicates apart."""
    return key + pack_window(start, number)


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


TIME_OF: Mapping[EntryTime, Callable[[bytes], int]] = {
    "window": window_start,
    "session": session_end,
    "version": version_time,
}
"""The functions that return an entry's time, by which it expires."""

_PLACES_OF_TIME: Mapping[EntryTime, slice] = {
    "window": slice(-12, -4),
    "session": slice(-16, -8),
    "version": slice(-8, None),
}
"""Where the time of `TIME_OF` is in a key."""

_KNOWN_TIMES = 10_000

_BYTES_OF_TIME: Mapping[EntryTime, int] = {
    "window": WINDOW_BYTES,
    "session": SESSION_BYTES,
    "version": TIME_BYTES,
}


def without_time(stored: bytes, time: EntryTime | None) -> bytes:
    """Return a key without the entry's time; b"" if it is too short to have one."""
    return stored if time is None else stored[: -_BYTES_OF_TIME[time]]


def record_key(stored: bytes, spreading: Spreading) -> bytes:
    """Return the key of the record that an entry belongs to, of any rule that has it in the key."""
    key = without_time(stored, spreading.time)[spreading.before :]
    if spreading.has_length:
        start = _LENGTH_BYTES
        key = key[start : start + int.from_bytes(key[:start], "big")]
    return without_end(key, spreading.after)


def without_end(key: bytes, count: int) -> bytes:
    """Return a key without its last bytes, such as those of a window."""
    return key[:-count] if count else key


def time_mark(time: EntryTime, timestamp: int) -> bytes:
    """Return a key under which a deletion brings a store's stream time to `timestamp`.

    No entry has this key, but in a versioned store the empty key's version with that time.
    """
    match time:
        case "window":
            return window_key(b"", timestamp, _MARK)
        case "session":
            return session_key(b"", MAX_TIME, timestamp)
        case "version":
            return version_key(b"", timestamp)


def is_time_mark(time: EntryTime, stored: bytes) -> bool:
    """Return whether a key that was deleted is one that `time_mark` returned."""
    return stored == time_mark(time, TIME_OF[time](stored))


def dropped_mark(time: EntryTime, until: int) -> bytes:
    """Return a key whose deletion says that a store has dropped what is older than `until`.

    No window or session has this key.
    """
    if time == "window":
        return window_key(b"", until, _MARK - 1)
    return session_key(b"", MAX_TIME - 1, until)


def dropped_until(time: EntryTime, stored: bytes) -> int:
    """Return the time of a key that `dropped_mark` returned; 0 for any other."""
    until = TIME_OF[time](stored)
    return until if stored == dropped_mark(time, until) else 0


def segment_of(time: EntryTime, segment_ms: int) -> Callable[[bytes], bytes]:
    """Return the function from a key to the 8 bytes of its segment."""
    segments, place = _Segments(segment_ms), _PLACES_OF_TIME[time]
    return lambda key: segments[key[place]]


class _Segments(dict[bytes, bytes]):
    """The 8 bytes of the segment of each time that was asked for lately."""

    def __init__(self, segment_ms: int) -> None:
        super().__init__()
        self._segment_ms = segment_ms

    def __missing__(self, time: bytes) -> bytes:
        if len(self) >= _KNOWN_TIMES:
            self.clear()
        self[time] = found = pack_time(int.from_bytes(time, "big") // self._segment_ms)
        return found


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that begin with `prefix`; `None` if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def range_end(key: bytes, last: int) -> bytes:
    """Return a bound after all times up to `last` of all keys up to and including `key`.

    The last of them in byte order may belong to a prefix of `key`.
    """
    time = pack_time(last + 1)
    # A prefix after which the key has a larger byte comes before the prefix with that byte.
    ends = [length for length, byte in enumerate(key) if byte <= time[0]]
    return max(key[:length] + time for length in (*ends, len(key)))

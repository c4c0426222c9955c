"""The time of a windowed step: how far it is, and which windows have been closed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from streams import serdes
from streams.serdes import Serde
from streams.stores import KeyValueStore, StoreBuilder, key_value

_LAYOUT = struct.Struct(">qq")
_TIMES: Serde[tuple[int, int]] = Serde(
    "times", lambda times: _LAYOUT.pack(*times), lambda data: _LAYOUT.unpack(data)[:2]
)
NO_TIME = -1
_KEY = "time"


def times_store(name: str) -> StoreBuilder[Any, Any]:
    """Return the definition of the store with the times of the windowed step `name`.

    The times must come back exactly as they were: a time that is too early would let late records
    in and emit windows again, and one that is too late would drop records and never emit windows.
    So they are state, and change with the windows in one transaction. They are not in the metadata
    of the committed offsets: an operator may set offsets, and the windows stay as they are. They
    are not in the window store itself, whose content is that of Kafka Streams. One record per
    transaction goes to the state topic.
    """
    return key_value(times_store_name(name), serdes.string, _TIMES).spread("times")


def merged_times(found: Sequence[bytes]) -> bytes:
    """Return the times of a task that takes the place of several, of those that they had.

    The latest time counts, as if the task had seen the records of all. So no window that was
    emitted is open again. The earliest time of closing counts: what only others have emitted must
    no longer be in the store, and all else is yet to be emitted.
    """
    nows, closed = zip(*map(_LAYOUT.unpack, found), strict=True)
    return _LAYOUT.pack(max(nows), min(closed))


def closed_until(times: bytes) -> int:
    """Return the time up to which windows were emitted."""
    closed: int = _LAYOUT.unpack(times)[1]
    return closed


def times_store_name(name: str) -> str:
    """Return the name of the store with the times of a windowed step."""
    return f"{name}-times"


class WindowTime:
    """The times of one processor, as its store has them.

    `now` is the largest timestamp of the records that the processor has seen, as in Kafka Streams:
    records that a filter drops ahead of it do not count. All windows that end before `closed`, or
    at it if their end is exclusive, were emitted. Both are -1 in the beginning.
    """

    def __init__(
        self,
        store: KeyValueStore[str, tuple[int, int]],
        *,
        is_shared: bool = False,
        on_undo: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_shared` says that other processors of the task have the same time.

        `on_undo` is called when the engine has undone what the processor did, and in the beginning.
        """
        self._is_shared = is_shared
        self._on_undo = on_undo
        self._store = store
        self._generation: int | None = None
        self._now = self._closed = NO_TIME

    def see(self, timestamp: int) -> int:
        """Take the timestamp of a record into account; return the time."""
        store = self._store
        if self._is_shared or store.generation != self._generation:
            self._read()
        if timestamp > self._now:
            self._now = timestamp
            store.put(_KEY, (timestamp, self._closed))
        return self._now

    @property
    def now(self) -> int:
        """The time, in ms."""
        if self._is_shared or self._store.generation != self._generation:
            self._read()
        return self._now

    @property
    def closed(self) -> int:
        """The time up to which windows were emitted."""
        if self._store.generation != self._generation:
            self._read()
        return self._closed

    def close(self, time: int) -> None:
        """Record that windows were emitted up to a time."""
        self._store.put(_KEY, (self.now, time))
        self._closed = time

    def _read(self) -> None:
        # What the engine has undone since must be forgotten here too.
        self._now, self._closed = self._store.get(_KEY) or (NO_TIME, NO_TIME)
        self._generation = self._store.generation
        self._on_undo()

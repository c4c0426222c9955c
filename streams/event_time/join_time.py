"""The time of a left or outer join of two streams, which both sides share."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from streams import serdes
from streams.processor import ProcessorContext
from streams.serdes import Serde
from streams.stores import KeyValueStore, StoreBuilder, key_value

_LAYOUT = struct.Struct(">qq")
_NONE = -1
_TIMES: Serde[tuple[int, int]] = Serde(
    "times", lambda times: _LAYOUT.pack(*times), lambda data: _LAYOUT.unpack(data)[:2]
)
_KEY = "join"


def join_time_store(name: str) -> StoreBuilder[str, tuple[int, int]]:
    """Return the definition of the store for `JoinTime`.

    Results hang on the time, so it is state: after a restart it must be what it was.
    """
    return key_value(name, serdes.string, _TIMES).spread("join_times")


def merged_join_times(found: Sequence[bytes]) -> bytes:
    """Return the times of a task that takes the place of several, of those that they had.

    The earliest time counts, as in `merged_times`, and any of the records may wait.
    """
    nows, earliest = zip(*map(_LAYOUT.unpack, found), strict=True)
    waits = [time for time in earliest if time != _NONE]
    return _LAYOUT.pack(min(nows), min(waits, default=_NONE))


class JoinTime:
    """The time of a join, and the earliest time of a record that waits.

    The former is that of `StepTime`, which says what moves it. The latter is where the last look at
    them stopped, or an earlier time that was added since.
    """

    def __init__(
        self, context: ProcessorContext, store: KeyValueStore[str, tuple[int, int]]
    ) -> None:
        self._task = context.task_time
        self._store = store
        self._generation: int | None = None
        self._now = self._earliest = self._passed = _NONE

    def see(self, timestamp: int) -> int:
        """Take the record in hand into account; return the time."""
        self._read()
        now = max(self._passed, timestamp if self._task.follows_records else _NONE)
        if now > self._now:
            self._set(now, self._earliest)
        return self._now

    @property
    def now(self) -> int:
        """The time, in ms."""
        self._read()
        return max(self._now, self._passed)

    def move(self, time: int) -> None:
        """Go on to a time, as all inputs are known to be there."""
        self._passed = max(self._passed, time)

    def _read(self) -> None:
        if self._store.generation != self._generation:
            # What the engine has undone since must be forgotten here too.
            self._now, self._earliest = self._store.get(_KEY) or (_NONE, _NONE)
            self._generation = self._store.generation

    @property
    def earliest(self) -> int | None:
        """The earliest time of a record that waits; `None` if there was none."""
        self._read()
        return None if self._earliest == _NONE else self._earliest

    def add(self, timestamp: int) -> None:
        """Record that a record with that time waits."""
        if self._earliest == _NONE or timestamp < self._earliest:
            self._set(self._now, timestamp)

    def restart(self, earliest: int | None) -> None:
        """Set the time at which a look at the waiting records stopped."""
        self._set(self._now, _NONE if earliest is None else earliest)

    def _set(self, now: int, earliest: int) -> None:
        self._store.put(_KEY, (now, earliest))
        self._now, self._earliest = now, earliest

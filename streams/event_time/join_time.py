"""The time of a left or outer join of two streams, which both sides share."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, StoreBuilder, key_value

_LAYOUT = struct.Struct(">qq")
_NONE = -1
_TIMES: Serde[int] = Serde(
    "times", lambda now: _LAYOUT.pack(now, _NONE), lambda data: int(_LAYOUT.unpack(data)[0])
)
"""The second number is not used: it was the earliest time of a record that waits."""
_KEY = "join"


def join_time_store(name: str) -> StoreBuilder[str, int]:
    """Return the definition of the store for `JoinTime`.

    Results hang on the time, so it is state: after a restart it must be what it was.
    """
    return key_value(name, serdes.string, _TIMES).spread("join_times")


def merged_join_times(found: Sequence[bytes]) -> bytes:
    """Return the time of a task that takes the place of several, of those that they had.

    The earliest time counts, as in `merged_times`.
    """
    return _LAYOUT.pack(min(_LAYOUT.unpack(data)[0] for data in found), _NONE)


class JoinTime:
    """The time of a join; `StepTime` says what moves it."""

    def __init__(self, context: ProcessorContext, store: KeyValueStore[str, int]) -> None:
        self._task = context.task_time
        self._store = store
        self._generation: int | None = None
        self._now = self._passed = _NONE

    def see(self, timestamp: int) -> int:
        """Take the record in hand into account; return the time."""
        self._read()
        now = max(self._passed, timestamp if self._task.follows_records else _NONE)
        if now > self._now:
            self._store.put(_KEY, now)
            self._now = now
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
            found = self._store.get(_KEY)
            self._now = _NONE if found is None else found
            self._generation = self._store.generation

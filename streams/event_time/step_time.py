"""The event time of steps with windows or joins, and the windows that they have closed."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.clocks import NO_CLOCK, Times, late_by
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, StoreBuilder, key_value

_LAYOUT = struct.Struct(">qq")
_TIMES: Serde[tuple[int, int]] = Serde(
    "times", lambda times: _LAYOUT.pack(*times), lambda data: _LAYOUT.unpack(data)[:2]
)
NO_TIME = -1
_KEY = "time"
_LEAP_KEY = "leap"
"""Its pair is the time before the last leap, and that after it."""

_JOIN_TIME: Serde[int] = Serde(
    "times", lambda now: _LAYOUT.pack(now, NO_TIME), lambda data: int(_LAYOUT.unpack(data)[0])
)
"""The second number is unused: it was the earliest time of a waiting record."""
_JOIN_KEY = "join"

_LEAST_STEP_MS = 60_000
"""A time that no record depends on yet is written only this often, in event time."""

ENDS_MS = 2
"""How far, in event time, stores stay behind the step that they follow: its ranges of time may
include their ends."""

EXPIRED = "expired"
"""The reason under which late records are counted, as stores count late entries."""

EXPIRED_AFTER_IDLE = "expired after idle"
"""The reason for records in time by their own clock, for windows that closed while their source
partition was idle."""

SENT_ON = {reason: f"{reason} (late_to)" for reason in (EXPIRED, EXPIRED_AFTER_IDLE)}
"""The reasons for late records that were sent to the topic of late records."""

SPLIT_SESSION = f"{EXPIRED} (split session)"
"""The reason for records in the results that are late for the session next to them. That session
has closed, so they are in another one, although the gap between both is not exceeded."""

EXPIRED_LOOKED_UP = f"{EXPIRED} (looked up)"
"""The reason for lookups of joins for windows that have expired. The results are as if the table
that was looked up had never had the window."""

LATE = frozenset((*SENT_ON, *SENT_ON.values(), SPLIT_SESSION, EXPIRED_LOOKED_UP))
"""All reasons of late records."""


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
    """Return the times of a task that replaces several, from the former tasks' times.

    The earliest time counts: records that its task still waits for may be under way, and the late
    records of the other tasks are late by their own clocks. The earliest closing time counts too:
    windows that other tasks have emitted must be gone from the store, and all others are due.
    """
    nows, closed = zip(*map(_LAYOUT.unpack, found), strict=True)
    return _LAYOUT.pack(min(nows), min(closed))


def closed_until(times: bytes) -> int:
    """Return the time up to which windows were emitted."""
    closed: int = _LAYOUT.unpack(times)[1]
    return closed


def time_of(times: bytes) -> int:
    """Return the time of a step with windows, or of a join, from what its store has."""
    now: int = _LAYOUT.unpack(times)[0]
    return now


def is_leap(key: bytes) -> bool:
    """Return whether an entry of a `times_store` is that of the last leap, and not the times."""
    return key == serdes.string.serialize(_LEAP_KEY)


def times_store_name(name: str) -> str:
    """Return the name of the store with the times of a windowed step."""
    return f"{name}-times"


def late_reason(own: int, closes_at: int, *, follows_records: bool) -> str:
    """Return the reason to count for a late record, whose own clock is `own`.

    Its window closes at `closes_at`. If its own clock is earlier, the step advanced without it
    because its source partition was idle.
    """
    is_behind = follows_records or own >= closes_at
    return EXPIRED if is_behind else EXPIRED_AFTER_IDLE


class FollowsTime(ABC):
    """A processor with work to do when event time advances without a record."""

    @abstractmethod
    def time_passed(self, time: int) -> None:
        """Do the work due: every future record has a clock of `time` or later.

        `time` is that of the task. A step subtracts the delay of the steps upstream that hold
        records back.
        """


class StepTime:
    """The times of one processor, as its store has them.

    `now` is the step's time. If the records of its task come from one writer, each record advances
    it, as in Kafka Streams. Otherwise it advances with the least progress of the task's inputs, so
    that their relative speed does not matter. All windows that end before `closed`, or at it if
    their end is exclusive, were emitted. Both are -1 at first.
    """

    def __init__(
        self,
        context: ProcessorContext,
        store: KeyValueStore[str, tuple[int, int]],
        *,
        is_shared: bool = False,
        leap_ms: int | None = None,
        on_undo: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_shared` says that other processors of the task have the same time.

        A move by more than `leap_ms` is a leap; see `settled`. `on_undo` is called after the engine
        has rolled the processor's changes back, and at first.
        """
        self._task = context.task_time
        self._hold_ms = context.hold_ms
        self._is_shared = is_shared
        self._leap_ms = leap_ms
        self._leap = (NO_TIME, NO_TIME)
        self._on_undo = on_undo
        self._store = store
        self._generation: int | None = None
        self._now = self._closed = NO_TIME
        self._passed = NO_TIME
        """The progress of all inputs; stored once a result depends on it."""

    @property
    def follows_records(self) -> bool:
        """Whether each record moves the time on."""
        return self._task.follows_records

    def see(self, timestamp: int) -> int:
        """Take the record in hand into account; return the time by which it may be late."""
        if self._is_shared or self._store.generation != self._generation:
            self._read()
        self._reach(timestamp if self._task.follows_records else NO_TIME)
        return max(self._now, self._task.clock, timestamp)

    def late_by(self, batch: Batch) -> Times:
        """Return the time by which each record of a batch may be late, without counting them."""
        return late_by(
            items_of(batch.timestamps),
            batch.clocks,
            self.now,
            follows_records=self.follows_records,
        )

    def late_reason(self, own: int, closes_at: int) -> str:
        """See the function."""
        return late_reason(own, closes_at, follows_records=self.follows_records)

    def moves(self, batch: Batch) -> list[int]:
        """Return the time after each record of a batch, without counting them."""
        now = self.now
        if not self.follows_records:
            return [now] * len(batch)
        reached = np.maximum.accumulate(np.asarray(items_of(batch.timestamps), np.int64))
        moved: list[int] = np.maximum(reached, now).tolist()
        return moved

    @property
    def now(self) -> int:
        """The time, in ms."""
        return max(self.persisted, self._passed)

    @property
    def persisted(self) -> int:
        """The time as the store has it."""
        if self._is_shared or self._store.generation != self._generation:
            self._read()
        return self._now

    @property
    def settled(self) -> int:
        """The time; until it is `leap_ms` past a leap, the time before that leap.

        Other steps of the task may not have made the leap yet.
        """
        now, (before, after) = self.now, self._leap
        return now if self._leap_ms is None or now > after + self._leap_ms else before

    @property
    def closed(self) -> int:
        """The time up to which windows were emitted."""
        if self._is_shared or self._store.generation != self._generation:
            self._read()
        return self._closed

    def close(self, time: int) -> None:
        """Record that windows were emitted up to a time."""
        now = self.now
        self._store.put(_KEY, (now, time))
        self._now, self._closed = now, time

    def move(self, time: int) -> None:
        """Go on to a time, as all inputs are known to be there."""
        self._passed = max(self._passed, time)
        if self._passed - self.persisted >= _LEAST_STEP_MS:
            self._reach(NO_TIME)

    @contextmanager
    def own_clocks(self) -> Iterator[None]:
        """Forward held-back records with their own times as clocks, not the current record's clock.

        So the record that releases them does not decide whether they are late downstream.
        """
        clock, self._task.clock = self._task.clock, NO_CLOCK
        try:
            yield
        finally:
            self._task.clock = clock

    @property
    def clock(self) -> int:
        """The clock of the record in hand; -1 if that is in order."""
        return self._task.clock

    def after_hold(self, time: int) -> int:
        """Return the step's time for a time of the task: upstream steps hold records back."""
        return time - self._hold_ms

    def _reach(self, timestamp: int) -> None:
        now = max(timestamp, self._passed)
        if now > self._now:
            if self._leap_ms is not None and now - self._now > self._leap_ms:
                self._leap = (self._now, now)
                self._store.put(_LEAP_KEY, self._leap)
            self._now = now
            self._store.put(_KEY, (now, self._closed))

    def _read(self) -> None:
        # What the engine has undone since must be forgotten here too.
        self._now, self._closed = self._store.get(_KEY) or (NO_TIME, NO_TIME)
        if self._leap_ms is not None:
            self._leap = self._store.get(_LEAP_KEY) or (NO_TIME, NO_TIME)
        self._generation = self._store.generation
        self._on_undo()


def join_time_store(name: str) -> StoreBuilder[str, int]:
    """Return the definition of the store for `JoinTime`.

    Results depend on the time, so it is state, and survives a restart.
    """
    return key_value(name, serdes.string, _JOIN_TIME).spread("join_times")


def merged_join_times(found: Sequence[bytes]) -> bytes:
    """Return the time of a task that replaces several: the earliest, as in `merged_times`."""
    return _LAYOUT.pack(min(_LAYOUT.unpack(data)[0] for data in found), NO_TIME)


class JoinTime:
    """The time of a join; `StepTime` says what moves it."""

    def __init__(self, context: ProcessorContext, store: KeyValueStore[str, int]) -> None:
        self._task = context.task_time
        self._store = store
        self._generation: int | None = None
        self._now = self._passed = NO_TIME

    def see(self, timestamp: int) -> int:
        """Take the record in hand into account; return the time."""
        self._read()
        now = max(self._passed, timestamp if self._task.follows_records else NO_TIME)
        if now > self._now:
            self._store.put(_JOIN_KEY, now)
            self._now = now
        return self._now

    def moves(self, times: Sequence[int]) -> list[int]:
        """Return the time after each of some records, without counting them."""
        now = self.now
        if not self._task.follows_records:
            return [now] * len(times)
        return list(accumulate(times, max, initial=now))[1:]

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
            found = self._store.get(_JOIN_KEY)
            self._now = NO_TIME if found is None else found
            self._generation = self._store.generation

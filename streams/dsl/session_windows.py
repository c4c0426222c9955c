"""Aggregates in sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kafka_pipeline.streams.dsl.change import Change
from kafka_pipeline.streams.dsl.closing import Closing
from kafka_pipeline.streams.dsl.stateless import NULL_KEY
from kafka_pipeline.streams.dsl.table_values import Found
from kafka_pipeline.streams.dsl.window_aggregates import WindowAggregator, WindowedAggregate
from kafka_pipeline.streams.dsl.windows import SessionWindows
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.event_time.step_time import SPLIT_SESSION
from kafka_pipeline.streams.processor import Processor
from kafka_pipeline.streams.record import Headers, Record
from kafka_pipeline.streams.stores import SessionStore, ValueAndTimestamp, Window, Windowed


class SessionAggregator(WindowAggregator, Processor):
    """Adds each record to its session; merges the sessions that it connects. Null keys are dropped.

    Where a session was merged, its result is withdrawn: `None` is forwarded for it. Whether a
    record is late is judged by the session that it would be in. A session that has closed does not
    change any more: a record next to one that is not late itself is counted as `SPLIT_SESSION`.
    """

    def __init__(self, aggregate: WindowedAggregate, windows: SessionWindows) -> None:
        super().__init__(aggregate)
        assert aggregate.serdes is not None, "AggregateWindows sets them"
        assert aggregate.functions.merger is not None
        self._merge = aggregate.functions.merger
        self._gap_ms = windows.gap_ms
        self._delay_ms = windows.gap_ms + windows.grace_ms
        self._closing = Closing(
            lambda first, last: sessions_ending(self._store, first, last),
            aggregate.serdes.key,
            self._delay_ms // 8,
        )

    def open_store(self, store: SessionStore[Any, Any]) -> None:
        self._store = store

    def process(self, record: Record) -> None:
        key, timestamp, gap_ms = record.key, record.timestamp, self._gap_ms
        if key is None:
            self.context.drop(NULL_KEY)
            return
        at = self.see(record)
        near = self._store.find_sessions_list(key, timestamp - gap_ms, timestamp + gap_ms)
        # Those that have closed may still be in the store.
        sessions = [each for each in near if each[0].window.end >= at - self._delay_ms]
        aggregate = self.functions.initializer()
        start = end = timestamp
        for session, value in sessions:
            aggregate = self._merge(key, aggregate, value)
            start, end = min(start, session.window.start), max(end, session.window.end)
        judged = Window(start, end) if self.time.follows_records else Window(timestamp, timestamp)
        if judged.end < at - self._delay_ms:
            self.late(record, judged, at, self.time.clock)
            return
        is_split = len(sessions) < len(near)
        if is_split or self._store.has_expired(key, timestamp - gap_ms, timestamp + gap_ms):
            self.context.drop(SPLIT_SESSION)
        merged = Windowed(key, Window(start, end))
        old = None
        if sessions and start == end == timestamp:
            old = self._old(merged)
        else:
            self._withdraw(sessions, record.headers)
        new = self.functions.adder(key, record.value, aggregate)
        try:
            self._store.put(merged, new)
        except SerializationError as error:
            raise self.unwritable(error) from error
        if self.closes:
            self._closing.add(merged)
        else:
            self.forward(Record(merged, Change(new, old), end, record.headers))

    def _withdraw(self, sessions: Sequence[tuple[Windowed[Any], Any]], headers: Headers) -> None:
        """Remove sessions that are part of a larger one now; `headers` are those of the record."""
        for session, _ in sessions:
            old = self._old(session)
            self._store.remove(session)
            if not self.closes:
                gone = Change(None, old)
                self.forward(Record(session, gone, session.window.end, headers))

    def _old(self, session: Windowed[Any]) -> Any:
        """Return the aggregate of a session as it is in the store, if that is sent on."""
        if not self.sends_old:
            return None
        return self._store.fetch_session(session.key, *session.window)

    def forget(self) -> None:
        self._closing.forget()

    def closed_windows(self, closed: int, now: int) -> Iterator[tuple[Windowed[Any], Any, int]]:
        # The end of a session belongs to it, so it closes when the time is larger.
        for session in self._closing.due(closed - self._delay_ms, now - self._delay_ms - 1):
            value = self._store.fetch_session(session.key, *session.window)
            if value is not None:
                yield session, value, session.window.end

    def all_closed_at(self, closed: int) -> int | None:
        return last_close(self._store, closed, self._delay_ms)


def sessions_ending(store: SessionStore[Any, Any], first: int, last: int) -> list[Windowed[Any]]:
    """Return the sessions that end between two times, both included."""
    with store.find_sessions_by_end(first, last) as found:
        return [session for session, _ in found]


def last_close(store: SessionStore[Any, Any], closed: int, delay_ms: int) -> int | None:
    """Return when the last of the open sessions closes; `None` if all have closed by `closed`.

    A session closes once time is later than its end by more than `delay_ms`.
    """
    open_ = sessions_ending(store, max(0, closed - delay_ms), 2**63 - 1)
    return max((session.window.end + delay_ms + 1 for session in open_), default=None)


def look_up_session(store: SessionStore[Any, Any], key: Windowed[Any]) -> Found:
    """Return the aggregate of a session and its end, or `None`."""
    value = store.fetch_session(key.key, *key.window)
    return None if value is None else ValueAndTimestamp(value, key.window.end)

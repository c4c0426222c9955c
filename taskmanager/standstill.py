"""Detects that the event time of a task does not advance, and the task that holds it back."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pipeline.streams.engine.recent import MinuteLimit
from kafka_pipeline.streams.event_time.progress import UNKNOWN
from kafka_pipeline.streams.event_time.writer_progress import Holder
from kafka_pipeline.taskmanager.running_task import EventTime

HELD_AFTER_MS = 5000
"""Event time that has not advanced for this long, plus what the settings allow for, is held
back."""
WARN_AFTER_MS = 60_000


class Standstill:
    """Decides whether a task's event time is held back, from one look to the next.

    Writers of its input commit at intervals, and a writer that has read everything becomes idle
    only after a while. So a task is held back if its event time does not advance for longer than
    both. Times are by a clock that only goes forward.
    """

    def __init__(self, idle_after_ms: int, commit_interval_ms: int) -> None:
        self._idle_after_ms = idle_after_ms
        self._held_after_ms = HELD_AFTER_MS + commit_interval_ms
        self._time = EventTime()
        self._stands_since_ms: int | None = None
        self._quiet_since_ms = 0
        self._warnings = MinuteLimit(1)
        self._is_idle = False
        self.holder: Holder | None = None
        """The task that holds event time back, if one does."""

    def look(
        self, time: EventTime, holders: Sequence[Holder], now_ms: int, *, is_caught_up: bool
    ) -> None:
        """Record the task's time, and the tasks that may hold it back, least progress first."""
        if self._stands_since_ms is None or time.time_ms != self._time.time_ms:
            self._stands_since_ms = now_ms
        if time != self._time:
            self._quiet_since_ms = now_ms
        self._time = time
        stands_ms = now_ms - self._stands_since_ms
        least = next(iter(holders), None)
        is_quiet = now_ms - self._quiet_since_ms >= self._idle_after_ms
        is_known = time.time_ms != UNKNOWN
        self._is_idle = is_known and least is None and is_caught_up and is_quiet
        self.holder = least if least is not None and self._holds(least, stands_ms) else None

    def _holds(self, least: Holder, stands_ms: int) -> bool:
        # A writer that is ahead of the task does not hold it back: the task itself has work to do.
        if least.time_ms > self._time.time_ms:
            return False
        grace_ms = self._idle_after_ms if least.unread == 0 else 0
        return stands_ms >= self._held_after_ms + grace_ms

    def end(self) -> None:
        """Record that the task does not run, so that nobody holds it back."""
        self._stands_since_ms, self._is_idle, self.holder = None, False, None

    def warns_of(self, now_ms: int) -> Holder | None:
        """Return the task that holds event time back, if a warning is due: once a minute."""
        since_ms = self._stands_since_ms
        if self.holder is None or since_ms is None or now_ms - since_ms <= WARN_AFTER_MS:
            return None
        return self.holder if self._warnings.admits(now_ms) else None

    @property
    def event_time_ms(self) -> int | None:
        """The event time of the task; `None` if unknown."""
        return None if self._time.time_ms == UNKNOWN else self._time.time_ms

    def stands_ms(self, now_ms: int) -> int:
        """Return for how many ms event time has not advanced."""
        return 0 if self._stands_since_ms is None else now_ms - self._stands_since_ms

    def figures(self) -> dict[str, int]:
        """Return the values of `FIGURES` that are known here; constant while nothing changes."""
        figures = {"is_idle": int(self._is_idle)}
        if self._time.time_ms != UNKNOWN:
            figures["event_time_ms"] = self._time.time_ms
        if self._time.newest_ms != UNKNOWN:
            figures["newest_record_ms"] = self._time.newest_ms
        if self.holder is not None and self.holder.unread is not None:
            figures["held_unread"] = self.holder.unread
        return figures

"""Since when the event time of a task stands still, and which task holds it back."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_pipeline.streams.engine.recent import MinuteLimit
from kafka_pipeline.streams.event_time.progress import UNKNOWN
from kafka_pipeline.streams.event_time.writer_progress import Holder
from kafka_pipeline.taskmanager.running_task import EventTime

HELD_AFTER_MS = 5000
"""Event time that has not moved for this long is held back, beyond what the settings allow for."""
WARN_AFTER_MS = 60_000


class Standstill:
    """Finds out whether a task is held back in event time, from one look at it to the next.

    Writers of its input commit now and then, and a writer that has read everything counts as idle
    only after a while. So a task is held back if its event time stands still for longer than that.
    Times are by a clock that only goes forward.
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
        """Take in how far the task is, and who may hold it back, those that are least far first."""
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
        # What is further than the task itself does not hold it back: the task has work to do.
        if least.time_ms > self._time.time_ms:
            return False
        grace_ms = self._idle_after_ms if least.unread == 0 else 0
        return stands_ms >= self._held_after_ms + grace_ms

    def end(self) -> None:
        """Record that the task does not run: nobody else holds it back."""
        self._stands_since_ms, self._is_idle, self.holder = None, False, None

    def warns_of(self, now_ms: int) -> Holder | None:
        """Return who holds event time back if a warning is due: after a minute, and each minute."""
        since_ms = self._stands_since_ms
        if self.holder is None or since_ms is None or now_ms - since_ms <= WARN_AFTER_MS:
            return None
        return self.holder if self._warnings.admits(now_ms) else None

    @property
    def event_time_ms(self) -> int | None:
        """The event time of the task, as far as it is known."""
        return None if self._time.time_ms == UNKNOWN else self._time.time_ms

    def stands_ms(self, now_ms: int) -> int:
        """Return for how long event time has stood still."""
        return 0 if self._stands_since_ms is None else now_ms - self._stands_since_ms

    def figures(self) -> dict[str, int]:
        """Return the values of `FIGURES` that it knows. They do not change while nothing moves."""
        figures = {"is_idle": int(self._is_idle)}
        if self._time.time_ms != UNKNOWN:
            figures["event_time_ms"] = self._time.time_ms
        if self._time.newest_ms != UNKNOWN:
            figures["newest_record_ms"] = self._time.newest_ms
        if self.holder is not None and self.holder.unread is not None:
            figures["held_unread"] = self.holder.unread
        return figures

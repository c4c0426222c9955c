"""Detects lost TaskManagers by elapsed time, never by message arrivals."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import MISSED_BEATS

ECHO_TIMEOUT_BEATS = 1.5
"""Kafka counts as away after this many heartbeat periods without an echo; below 2, see `tick`."""


class HeartbeatController:
    """Counts the heartbeat periods that passed without a beat; at three, a TaskManager is down.

    Times are milliseconds of any monotonic clock. If the gap between two ticks is longer than a
    period, this process did not run: beats may be waiting to be read, so the gap does not count
    against any TaskManager. Nor does time in which Kafka is away: then the JobManager's own beats
    do not come back either.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._last_beat_ms: dict[int, int] = {}
        self._now_ms: int | None = None
        self._echo_ms: int | None = None
        self.is_isolated = False
        """Whether this process's own beats do not come back, so no TaskManager is declared down."""

    def beat(self, tm_id: int) -> None:
        """Record a sign of life at the time of the last tick. Call `tick` first."""
        assert self._now_ms is not None, "the time is not known before the first tick"
        self._last_beat_ms[tm_id] = self._now_ms

    def forget(self, tm_id: int) -> None:
        """Stop watching a TaskManager that left."""
        self._last_beat_ms.pop(tm_id, None)

    def echo(self) -> None:
        """Record that a beat of this process came back. Call `tick` first.

        After Kafka was away, no TaskManager counts as having missed more than one beat: clients
        take a moment to reconnect.
        """
        assert self._now_ms is not None, "the time is not known before the first tick"
        self._echo_ms = self._now_ms
        if self.is_isolated:
            self.is_isolated = False
            for tm_id, last_ms in self._last_beat_ms.items():
                self._last_beat_ms[tm_id] = max(last_ms, self._now_ms - self._interval_ms)

    def tick(self, now_ms: int) -> list[int]:
        """Advance the time; return the TaskManagers that have now missed three beats.

        A TaskManager that beat until Kafka went away has missed up to two and a half beats when
        the outage is noticed.
        """
        previous_ms = now_ms if self._now_ms is None else self._now_ms
        self._now_ms = now_ms
        paused_ms = max(now_ms - previous_ms - self._interval_ms, 0)
        for tm_id in self._last_beat_ms:
            self._last_beat_ms[tm_id] += paused_ms
        if self._echo_ms is not None:
            self._echo_ms += paused_ms
            self.is_isolated = now_ms - self._echo_ms > ECHO_TIMEOUT_BEATS * self._interval_ms
        if self.is_isolated:
            return []
        down = [
            tm_id
            for tm_id, last_ms in self._last_beat_ms.items()
            if (now_ms - last_ms) // self._interval_ms >= MISSED_BEATS
        ]
        for tm_id in down:
            del self._last_beat_ms[tm_id]
        return down

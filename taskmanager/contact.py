"""Whether a TaskManager may have been counted as down without having read so."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import MISSED_BEATS

PATIENCE_BEATS = MISSED_BEATS - 1
"""A TaskManager doubts that it is known to be up one heartbeat before it may count as down."""


class Contact:
    """Follows whether Kafka gets this TaskManager's reports.

    If it has not confirmed any for two heartbeats, a JobManager may have given the tasks to others.
    It then leaves a command that says so. So once Kafka confirms a report again, all commands up to
    that moment must be read before any task may fence another owner. This needs Kafka only: without
    a JobManager there is no such command, and all tasks go on.
    """

    def __init__(self, heartbeat_interval_ms: int) -> None:
        self._patience_ms = PATIENCE_BEATS * heartbeat_interval_ms
        self._confirmed_ms: int | None = None
        """When Kafka last confirmed a report; `None` before the first."""
        self.is_sure = True
        """Whether no command can say, unread, that the tasks belong to others."""

    def tick(self, now_ms: int) -> None:
        """Let time pass."""
        if self._confirmed_ms is not None and now_ms - self._confirmed_ms > self._patience_ms:
            self.is_sure = False

    def confirmed(self, now_ms: int) -> bool:
        """Record that Kafka has a report; return whether commands must now be read to the end."""
        self._confirmed_ms = now_ms
        return not self.is_sure

    def caught_up(self) -> None:
        """Record that all commands have been read that there were when Kafka confirmed a report."""
        self.is_sure = True

"""The passage of time, as an event for the cores of the JobManager and of the TaskManager."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: ms of a monotonic clock. Comes several times per heartbeat interval."""

    now_ms: int

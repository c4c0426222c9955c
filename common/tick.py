"""The passage of time, as the cores of the JobManager and of the TaskManager get it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: milliseconds of a monotonic clock, several times per heartbeat period."""

    now_ms: int

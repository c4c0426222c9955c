"""Whether a daemon works: its loop turns, and it is ready for what it is there for."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_pipeline.common.config.config import Config

_TIMEOUTS = 2
_MARGIN_S = 60.0
"""A JobManager waits for 60 s and a transaction until Kafka has taken its first command."""


class LoopWatch:
    """Notices that a daemon's main loop hangs. The loop calls `turned`, any thread the rest.

    Until the loop begins, nothing is wrong: a daemon that cannot start ends by itself. The limit is
    longer than any call of the loop may block while Kafka is away: a supervisor that restarts a
    daemon for that would only make it worse.
    """

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_s = _TIMEOUTS * config.transaction_timeout_ms / 1000 + _MARGIN_S
        self._clock = clock
        self._turned_s: float | None = None

    def turned(self) -> None:
        """Record that the loop has begun another round."""
        self._turned_s = self._clock()

    def problems(self) -> list[str]:
        """Return what is wrong, as sentences for people."""
        if self._turned_s is None:
            return []
        age_s = self._clock() - self._turned_s
        if age_s <= self._limit_s:
            return []
        return [f"the main loop has not turned for {age_s:.0f} s; it may take {self._limit_s:.0f}"]

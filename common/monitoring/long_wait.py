"""Logs, again and again, what a daemon is waiting for."""

from __future__ import annotations

from typing import Any

EVERY_S = 10.0


class LongWait:
    """Logs a wait every ten seconds while it lasts."""

    def __init__(self, log: Any, event: str) -> None:
        """`log` is a logger of structlog, and `event` says what the daemon is waiting for."""
        self._log = log
        self._event = event
        self._since_s = 0.0
        self._said_s: float | None = None

    def look(self, now_s: float, *, waits: bool) -> None:
        """Log the wait if it has lasted for ten more seconds; `now_s` must never decrease."""
        if not waits:
            self._said_s = None
        elif self._said_s is None:
            self._since_s = self._said_s = now_s
        elif now_s - self._said_s >= EVERY_S:
            self._said_s = now_s
            self._log.info(self._event, seconds=round(now_s - self._since_s))

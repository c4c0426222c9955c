"""Logs events that others can cause without limit, at growing intervals."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

_MOST_REASONS = 100
_MOST_CHARACTERS = 500


class CountedLog:
    """Counts an event by reason, and logs the 1st, 2nd, 4th, 8th … time of each reason.

    At most a hundred reasons are logged, so that nobody can fill the log by causing events. `add`
    may be called from any thread.
    """

    def __init__(self, log: Any, event: str) -> None:
        """`log` is a logger of structlog."""
        self._log = log
        self._event = event
        self._by_reason = Counter[str]()
        self._changing = threading.Lock()
        self.total = 0

    def add(self, reason: str) -> None:
        """Count the event once."""
        reason = reason[:_MOST_CHARACTERS]
        with self._changing:
            self.total += 1
            if reason not in self._by_reason and len(self._by_reason) >= _MOST_REASONS:
                return
            self._by_reason[reason] += 1
            count, total = self._by_reason[reason], self.total
        if count & (count - 1) == 0:
            self._log.warning(self._event, reason=reason, count=count, total=total)

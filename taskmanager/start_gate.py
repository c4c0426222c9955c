"""Holds tasks back before they fence others, while they may belong to others."""

from __future__ import annotations

import time
from collections.abc import Callable

from kafka_pipeline.common.kafka.clients import TransactionFailedError

GRACE_S = 2.0
"""How long a fence that is under way goes on after the gate has closed: a broker may just be slow,
and each new start takes longer than that."""
_POLL_S = 0.05


class StartGate:
    """Open while the driver is sure of its tasks (`Contact`); its pings say so.

    One thread opens and closes it, and starts of tasks wait on others.
    """

    def __init__(self) -> None:
        self._closed_s: float | None = None
        """Since when it is closed; `None` while it is open."""

    @property
    def is_open(self) -> bool:
        """Whether tasks may begin to fence others."""
        return self._closed_s is None

    def set(self, is_open: bool) -> None:
        """Open or close it."""
        if is_open:
            self._closed_s = None
        elif self._closed_s is None:
            self._closed_s = time.monotonic()

    def wait(self, require_wanted: Callable[[], None]) -> None:
        """Wait until the gate is open; `require_wanted` may raise to end the wait."""
        while not self.is_open:
            require_wanted()
            time.sleep(_POLL_S)

    def require_open(self) -> None:
        """Raise `TransactionFailedError` if it has been closed for long.

        The task then starts again, and waits.
        """
        closed_s = self._closed_s
        if closed_s is not None and time.monotonic() - closed_s > GRACE_S:
            raise TransactionFailedError(
                "Kafka does not confirm this TaskManager's reports, so others may own the task"
            )

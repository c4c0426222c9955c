"""Waits for what happens on other threads, or in other processes."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], limit_s: float = 30) -> None:
    """Fail if the condition does not hold in time."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"it does not hold after {limit_s} s"
        time.sleep(0.02)

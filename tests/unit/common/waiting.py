"""Waits for what happens on other threads."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_S = 30


def wait_until(condition: Callable[[], bool]) -> None:
    """Fail if the condition does not hold in time."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)

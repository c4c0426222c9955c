"""Waits for what happens on other threads, or in other processes."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], bool],
    limit_s: float = 60,
    *,
    every_s: float = 0.02,
    shows: Callable[[], str] = str,
) -> None:
    """Fail if the condition does not hold in time, with what `shows` returns then."""
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"it does not hold after {limit_s} s\n{shows()}"
        time.sleep(every_s)

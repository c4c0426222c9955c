"""The wall clock, for what people and other programs read; the engine's own waits do not use it."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch, by the clock of this host."""
    return int(time.time() * 1000)

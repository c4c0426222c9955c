"""The wall clock, for people and other programs; the engine's own timeouts do not use it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch, by the clock of this host."""
    return int(time.time() * 1000)


def shown_moment(ms: int | None) -> str:
    """Return a time as `2026-01-31 10:00:00 UTC`, as ms after the year 9999, or as "unknown"."""
    if ms is None:
        return "unknown"
    try:
        return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"

"""Moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def shown_moment(ms: int | None) -> str:
    """Return a time in ms since the epoch to the second, in UTC; ms if it is after year 9999."""
    if ms is None:
        return "unknown"
    try:
        return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"

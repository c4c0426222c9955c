"""The clocks in milliseconds: the wall clock, and the one for timeouts, which never goes back."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch, by the clock of this host."""
    return int(time.time() * 1000)


def monotonic_ms() -> int:
    """Return milliseconds of a clock that only goes forward."""
    return int(time.monotonic() * 1000)


def ms_of(moment: datetime) -> int:
    """Return milliseconds since the epoch, rounded down; a moment without a zone is in UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // MILLISECOND


def shown_moment(ms: int | None) -> str:
    """Return a time as `2026-01-31 10:00:00 UTC`, as ms after the year 9999, or as "unknown"."""
    if ms is None:
        return "unknown"
    try:
        return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"

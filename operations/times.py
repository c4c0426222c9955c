"""Times as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> int:
    """Return a time in ISO 8601 as ms since the epoch, in UTC unless it says otherwise.

    Raises ValueError, with a message for the user, if it is none.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f'"{text}" is not a time, such as 2026-11-23T18:00:00') from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def shown_time(ms: int) -> str:
    """Return a time in ms since the epoch in ISO 8601, in UTC; ms if it is after the year 9999."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"

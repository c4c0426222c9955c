"""Times as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


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
    return (found - _EPOCH) // _MS


def shown_time(ms: int) -> str:
    """Return a time in ms since the epoch in ISO 8601, in UTC; ms outside the years 1 to 9999."""
    try:
        return (_EPOCH + ms * _MS).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms"

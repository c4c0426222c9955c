"""Times as people type and read them."""

from __future__ import annotations

from datetime import datetime

from kafka_pipeline.common.clock import EPOCH, MILLISECOND, ms_of


def parse_time(text: str) -> int:
    """Return a time in ISO 8601 as ms since the epoch, in UTC unless it says otherwise.

    Raises ValueError, with a message for the user, if it is none.
    """
    try:
        return ms_of(datetime.fromisoformat(text))
    except ValueError as error:
        raise ValueError(f'"{text}" is not a time, such as 2026-11-23T18:00:00') from error


def shown_time(ms: int) -> str:
    """Return a time in ms since the epoch in ISO 8601, in UTC; ms outside the years 1 to 9999."""
    try:
        return (EPOCH + ms * MILLISECOND).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms"

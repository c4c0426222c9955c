"""How long something takes, as users say it: whole milliseconds, or a `timedelta`.

Each argument of the API that is a duration has a name that ends in `_ms`, and takes both.
"""

from __future__ import annotations

from datetime import timedelta

from kafka_pipeline.common.clock import MILLISECOND
from kafka_pipeline.streams.errors import InvalidArgumentError

Milliseconds = int | timedelta


def whole_ms(where: str, argument: str, value: object, least: int) -> int:
    """Return a duration in ms; `where` and `argument` name it in messages.

    Raises `InvalidArgumentError` if it is not a whole number of milliseconds, or below `least`.
    """
    if isinstance(value, timedelta):
        found, rest = divmod(value, MILLISECOND)
        whole = None if rest else found
    else:
        whole = value if type(value) is int else None
    if whole is None or whole < least:
        advice = f"give a timedelta, or a whole number of milliseconds, {least} or more"
        raise InvalidArgumentError(
            f"{where} has {argument}={value!r}: {advice}",
            shown=f"{where} has an invalid {argument}: {advice}",
        )
    return whole


def whole_ms_or_none(where: str, argument: str, value: object, least: int) -> int | None:
    """Return a duration in ms, or `None` for `None`; see `whole_ms`."""
    return None if value is None else whole_ms(where, argument, value, least)

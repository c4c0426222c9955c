"""Checks of the arguments that user code passes."""

from __future__ import annotations

from kafka_pipeline.streams.errors import InvalidArgumentError


def require_int(what: str, number: object, least: int) -> None:
    """Raise `InvalidArgumentError` unless `number` is a whole number of `least` or more."""
    if type(number) is not int or number < least:
        raise InvalidArgumentError(
            f"{what} must be a whole number, {least} or more, not {number!r}"
        )

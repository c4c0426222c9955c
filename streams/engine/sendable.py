"""Checks that a producer will accept the timestamp and the headers of a record.

When a producer sends the outputs of a whole batch, it is too late to tell which record is to blame.
So both are checked where a record leaves the nodes, and `on_error` decides about the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from kafka_pipeline.streams.errors import InvalidArgumentError

END_OF_TIME = 2**63
"""The first timestamp that is too large."""


def refuse_timestamp(where: str, timestamp: object, least: int) -> NoReturn:
    """Raise `InvalidArgumentError` for an invalid timestamp; `where` says who got it."""
    if type(timestamp) is not int:
        given = f"of the type {type(timestamp).__name__}"
    else:
        given = "that is negative" if timestamp < 0 else "beyond 2**63 - 1 ms"
    raise InvalidArgumentError(
        f"{where} got a timestamp {given}: give an int, {least} to 2**63 - 1, in milliseconds"
    )


def check_timestamp(where: str, timestamp: object, least: int = 0) -> None:
    """Raise `InvalidArgumentError` unless this is a timestamp of `least` or more."""
    if type(timestamp) is not int or not least <= timestamp < END_OF_TIME:
        refuse_timestamp(where, timestamp, least)


def sendable_headers(where: str, headers: object) -> list[tuple[str, bytes | None]]:
    """Return headers in the form that a producer takes.

    Raises `InvalidArgumentError` unless they are pairs of a string and bytes or `None`.
    """
    if not isinstance(headers, Sequence) or isinstance(headers, str | bytes):
        _refuse_headers(where, f"a {type(headers).__name__}")
    taken: list[tuple[str, bytes | None]] = []
    for header in headers:
        if not isinstance(header, tuple | list) or len(header) != 2:
            _refuse_headers(where, f"a {type(header).__name__} in it that is not a pair")
        name, value = header
        if not isinstance(name, str):
            _refuse_headers(where, f"a name of the type {type(name).__name__}")
        if value is not None and not isinstance(value, bytes):
            _refuse_headers(where, f"a value of the type {type(value).__name__}")
        taken.append((name, value))
    return taken


def _refuse_headers(where: str, given: str) -> NoReturn:
    raise InvalidArgumentError(
        f"{where} got headers with {given}: give a list of pairs of a string and bytes, or None"
    )

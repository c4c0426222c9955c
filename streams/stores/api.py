"""What the stores give and take besides keys and values."""

from __future__ import annotations

from typing import Generic, NamedTuple, NoReturn, TypeVar

from streams.errors import StateStoreError

K = TypeVar("K")
V = TypeVar("V")

PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
"""`VersionedKeyValueStore.put` made the latest version, which has no end yet."""

PUT_RETURN_CODE_NOT_PUT = -(2**63)
"""`VersionedKeyValueStore.put` dropped a version that is older than the history."""


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the time of the record that it comes from, in ms."""

    value: V
    timestamp: int


class Window(NamedTuple):
    """A stretch of time in ms.

    `end` is not in a window of fixed size any more; in a session it is the time of the last record.
    """

    start: int
    end: int


class Windowed(NamedTuple, Generic[K]):
    """A key in a window: two windows of one key are two keys."""

    key: K
    window: Window


class VersionedRecord(NamedTuple, Generic[V]):
    """A value that held from `timestamp` on, until before `valid_to`; `None` = it still does."""

    value: V
    timestamp: int
    valid_to: int | None = None


def null_key(store: str) -> NoReturn:
    """Refuse a key that is `None`."""
    raise StateStoreError(f'the store "{store}" has no null key: give a key')


def check_time(store: str, time: int) -> None:
    """Refuse a time that cannot be stored: it is in ms since the epoch, and 8 bytes long."""
    if not 0 <= time < 2**63:
        raise StateStoreError(f'the store "{store}" takes times from 0 to 2^63 - 1 ms, not {time}')

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


class LateCount:
    """Counts what a store refuses because it comes too late; what is undone, counts no more."""

    name: str
    dropped: int = 0
    """How many entries were refused because they came too late."""

    _marked = 0

    def mark(self) -> None:
        """Remember the count, for `back_to_mark`; the engine does both."""
        self._marked = self.dropped

    def back_to_mark(self) -> None:
        """Forget what was counted since the last mark."""
        self.dropped = self._marked


def null_key(store: str) -> NoReturn:
    """Refuse a key that is `None`."""
    raise StateStoreError(f'the store "{store}" has no null key: give a key')


def check_time(store: str, time: int) -> None:
    """Refuse a time that cannot be stored: it is in ms since the epoch, and 8 bytes long."""
    if time.__class__ is not int or not 0 <= time < 2**63:
        _refuse_time(store, time, "from 0")


def check_value_time(store: str, time: int) -> None:
    """Refuse a time that cannot stand with a value; -1 says that it is unknown."""
    if time.__class__ is not int or not -1 <= time < 2**63:
        _refuse_time(store, time, "from -1")


def check_bounds(store: str, *times: int) -> None:
    """Refuse times to look for that are no whole numbers; any are taken."""
    for time in times:
        if time.__class__ is not int:
            raise StateStoreError(
                f'the store "{store}" looks for times that are whole numbers, in ms, not a '
                f"{type(time).__name__}"
            )


def _refuse_time(store: str, time: object, low: str) -> NoReturn:
    given = time if type(time) is int else f"a {type(time).__name__}"
    raise StateStoreError(f'the store "{store}" takes times {low} to 2^63 - 1 ms, not {given}')

"""Types of stores other than keys and values, and checks of arguments."""

from __future__ import annotations

from typing import Generic, NamedTuple, NoReturn, TypeVar

from kafka_pipeline.streams.errors import StateStoreError

V = TypeVar("V")

PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
"""`VersionedKeyValueStore.put` made the latest version, which has no end yet."""

PUT_RETURN_CODE_NOT_PUT = -(2**63)
"""`VersionedKeyValueStore.put` dropped a version that is older than the history."""


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the time of the record that it comes from, in ms."""

    value: V
    timestamp: int


class VersionedRecord(NamedTuple, Generic[V]):
    """A value that is valid from `timestamp` until before `valid_to`; `None` means it still is."""

    value: V
    timestamp: int
    valid_to: int | None = None


class SerializedVersion(NamedTuple):
    """The bytes of a version, and the times at which it can be looked up.

    Those are from `visible_from` until before `visible_until`; `None` means there is no end.
    """

    value: bytes
    timestamp: int
    visible_from: int
    visible_until: int | None


def null_key(store: str) -> NoReturn:
    """Refuse a key that is `None`."""
    raise StateStoreError(f'the store "{store}" has no null key: give a key')


def check_time(store: str, time: int) -> None:
    """Refuse a time that cannot be stored: it is in ms since the epoch, and 8 bytes long."""
    if time.__class__ is not int or not 0 <= time < 2**63:
        _refuse_time(store, time, "from 0")


def check_value_time(store: str, time: int) -> None:
    """Refuse a time that a value cannot have; -1 means that the time is unknown."""
    if time.__class__ is not int or not -1 <= time < 2**63:
        _refuse_time(store, time, "from -1")


def check_bounds(store: str, *times: int) -> None:
    """Refuse times to look for that are not whole numbers; any whole number is allowed."""
    for time in times:
        if time.__class__ is not int:
            raise StateStoreError(
                f'the store "{store}" looks for times that are whole numbers, in ms, not a '
                f"{type(time).__name__}"
            )


def _refuse_time(store: str, time: object, low: str) -> NoReturn:
    takes = f'the store "{store}" takes times {low} to 2^63 - 1 ms'
    kind = f"a {type(time).__name__}"
    if type(time) is not int:
        raise StateStoreError(f"{takes}, not {kind}")
    raise StateStoreError(f"{takes}, not {time}", shown=f"{takes}, not one out of this range")

"""What tables forward: a value and the one before it, and how a pair of them becomes bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.record import LazyColumn, items_of
from kafka_pipeline.streams.serdes import Serde

OUT_OF_ORDER = "out of order"
"""The reason under which changes of versioned tables that are not the latest are dropped."""

_OLD, _NEW, _BOTH = 0, 1, 2
_OF_LATEST = 3
"""What is added to the flag of a change that is not the latest of its key."""


class Change:
    """The value of a record between tables; `None` on either side means that there is no value.

    `old` is `None` as well if nothing downstream needs it. `is_latest` is `False` if a versioned
    table got a version that is older than its latest one (KIP-914).
    """

    __slots__ = ("is_latest", "new", "old")

    def __init__(self, new: Any, old: Any = None, is_latest: bool = True) -> None:
        self.new = new
        self.old = old
        self.is_latest = is_latest

    def __repr__(self) -> str:
        return f"Change({self.new!r}, {self.old!r}, {self.is_latest!r})"


class ChangeColumn(LazyColumn):
    """A column of changes, which are made only if something other than a stream follows."""

    def __init__(self, new: Sequence[Any], old: Sequence[Any]) -> None:
        """Each change has a new and an old value, and is the latest of its key."""
        self.new = new
        self.old = old
        self._changes: list[Change] | None = None

    def __len__(self) -> int:
        return len(self.new)

    def to_pylist(self) -> list[Change]:
        if self._changes is None:
            self._changes = list(map(Change, self.new, self.old))
        return self._changes

    def selected(self, kept: Sequence[bool]) -> ChangeColumn:
        return ChangeColumn(list(compress(self.new, kept)), list(compress(self.old, kept)))


def column_of_latest(values: Sequence[Any]) -> ChangeColumn | None:
    """Return changes as a column; `None` if one is not the latest of its key."""
    if isinstance(values, ChangeColumn):
        return values
    changes = items_of(values)
    if not all(change.is_latest for change in changes):
        return None
    return ChangeColumn([each.new for each in changes], [each.old for each in changes])


def change_serde(inner: Serde[Any]) -> Serde[Change]:
    """Return the serde of changes in a repartition topic; `inner` is that of the values.

    The layout is that of Kafka Streams since KIP-904: the values, with the length of the new one
    first if there are both, and a flag at the end that says which there are.
    """
    write, read = inner.serialize, inner.deserialize
    name = f"change of {inner.name}"

    def serialize(change: Change) -> bytes:
        new, old = change.new, change.old
        latest, shift = (b"", 0) if change.is_latest else (b"\x00", _OF_LATEST)
        if new is not None and old is not None:
            data = write(new)
            size = len(data)
            length = _SHORT_LENGTHS[size] if size < _SHORT else _varint(size)
            return length + data + write(old) + latest + bytes((_BOTH + shift,))
        if new is not None:
            return write(new) + latest + bytes([_NEW + shift])
        if old is not None:
            return write(old) + latest + bytes([_OLD + shift])
        raise SerializationError(f"the serde {name} cannot write this: it has no value at all")

    def deserialize(data: bytes) -> Change:
        flag = data[-1] if data else -1
        if not 0 <= flag <= _BOTH + _OF_LATEST:
            raise SerializationError(
                f"the serde {name} cannot read these bytes: no flag at the end"
            )
        shift = _OF_LATEST if flag >= _OF_LATEST else 0
        values = data[:-2] if shift else data[:-1]
        is_latest = not shift or data[-2:-1] == b"\x01"
        if flag - shift == _NEW:
            return Change(read(values), None, is_latest)
        if flag - shift == _OLD:
            return Change(None, read(values), is_latest)
        length, start = _read_varint(name, values)
        middle = start + length
        return Change(read(values[start:middle]), read(values[middle:]), is_latest)

    return Serde(name, serialize, deserialize)


def _varint(number: int) -> bytes:
    """Return a number, 0 or more, as Kafka's zigzag varint."""
    number <<= 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


_SHORT = 64
_SHORT_LENGTHS = [_varint(size) for size in range(_SHORT)]
"""The lengths that take one byte."""


def _read_varint(name: str, data: bytes) -> tuple[int, int]:
    """Return the number at the beginning of `data`, and where it ends."""
    number = 0
    for index, byte in enumerate(data[:5]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number >> 1, index + 1
    raise SerializationError(f"the serde {name} cannot read these bytes: their length is cut off")

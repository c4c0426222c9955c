"""What is kept of each key of a topic of change events, so that each change counts once.

A connector that starts again repeats what it had sent: the same changes, in the same order. So a
change that is older than the last one of its key is a repeated one. Positions of one key go up,
since a transaction locks its rows; those of different keys need not, as transactions overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kafka_pipeline.streams.debezium import (
    Change,
    EnvelopeError,
    Position,
    is_older,
    is_shared,
    row_of,
    row_text,
)
from kafka_pipeline.streams.serdes import Serde

REPEATED = "repeated change"
"""The reason under which changes that are older than the kept one of their key are counted."""

_LONG_BYTES = 1_000
"""A row of fewer bytes has no values that PostgreSQL would leave out of an update: it moves values
out of rows of more than 2 KB."""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """What is known of a key: its last change, and whether it has a row.

    `has_ignored` says that the last record was a deletion that was repeated: the tombstone that
    follows belongs to it. A long row is kept as a whole.
    """

    position: Position | None = None
    is_there: bool = False
    has_ignored: bool = False
    row: msgspec.Raw = msgspec.Raw(b"null")


class Step(msgspec.Struct, frozen=True):
    """What a change comes to: what is `kept` now, and what the table gets.

    With `is_passed`, the table gets `row`, or loses the row of the key if that is `None`.
    `is_repeated` counts the change as a repeated one.
    """

    kept: Kept | None
    is_passed: bool = False
    row: bytes | None = None
    is_repeated: bool = False


_write = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(Kept).decode


KEPT: Serde[Kept] = Serde("kept change", _write, _read)
"""The serde of the stores of what is kept of each key."""


def step(kept: Kept | None, change: Change) -> Step:
    """Return what a change of a key comes to. Raises `EnvelopeError` if its row is incomplete."""
    if change.row is None:
        return _deletion(kept, change)
    return _row(kept, change, change.row)


def _deletion(kept: Kept | None, change: Change) -> Step:
    if kept is None:
        # Nothing is known of the key, which may have had a row before the first record here.
        return Step(None if change.is_tombstone else Kept(change.position), is_passed=True)
    if change.is_tombstone:
        if not kept.is_there or kept.has_ignored:
            return Step(_unmarked(kept))
        # Compaction has removed the deletion itself.
        return Step(Kept(kept.position), is_passed=True)
    if is_older(change.position, kept.position):
        return Step(msgspec.structs.replace(kept, has_ignored=True), is_repeated=True)
    if not kept.is_there:
        return Step(Kept(change.position), is_repeated=_is_same(kept, change))
    return Step(Kept(change.position), is_passed=True)


def _row(kept: Kept | None, change: Change, row: Mapping[str, Any]) -> Step:
    position = change.position
    if change.is_read:
        # A transaction that the snapshot did not see may have begun before it: its changes are
        # newer, with earlier positions. So the position is that of the last change before, unless
        # the log has begun again since.
        former = None if kept is None else kept.position
        position = former if former is not None and is_older(former, position) else None
    elif kept is not None and (
        is_older(position, kept.position)
        or (kept.is_there and _is_same(kept, change) and not is_shared(position))
    ):
        return Step(_unmarked(kept), is_repeated=True)
    if change.missing:
        row = _completed(row, change.missing, kept)
    text = row_text(row)
    whole = msgspec.Raw(text if len(text) >= _LONG_BYTES else b"null")
    return Step(Kept(position, is_there=True, row=whole), is_passed=True, row=text)


def _unmarked(kept: Kept) -> Kept:
    return msgspec.structs.replace(kept, has_ignored=False) if kept.has_ignored else kept


def _is_same(kept: Kept, change: Change) -> bool:
    return change.position is not None and change.position == kept.position


def _completed(
    row: Mapping[str, Any], missing: tuple[str, ...], kept: Kept | None
) -> Mapping[str, Any]:
    """Return a row with the values that its record lacks, from the row that was kept."""
    former = None if kept is None or not kept.is_there else bytes(kept.row)
    values = {} if former in (None, b"null") else row_of(former)
    for name in missing:
        if name not in values:
            raise EnvelopeError(
                f"after.{name} has no value, since the update left it as it was, and the row that "
                "it was in is not known: set REPLICA IDENTITY FULL for the table"
            )
    return {**row, **{name: values[name] for name in missing}}

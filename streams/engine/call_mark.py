"""The mark that a task leaves before it calls user code, which survives the end of the process."""

from __future__ import annotations

from typing import Protocol

from kafka_pipeline.common.protocol.suspects import CallKind


class CallMark(Protocol):
    """Says which call of user code is in progress. One thread at a time uses it."""

    def set(
        self,
        kind: CallKind,
        topic: str = "",
        partition: int = 0,
        first: int = 0,
        last: int = 0,
        thread: int = 0,
    ) -> None:
        """Mark a call that begins now, and the offsets of its records.

        `thread` is Python's number of the thread that runs it; 0 for this one.
        """

    def clear(self) -> None:
        """Remove the mark: no call is in progress."""


class NoMark:
    """Ignores all marks."""

    def set(self, *_: object, **__: object) -> None: ...
    def clear(self) -> None: ...

"""What every node of a running group is to those that forward to it."""

from __future__ import annotations

from collections.abc import Callable

from streams.record import Batch, Record

Receiver = Callable[[Record], None]
BatchReceiver = Callable[[Batch], None]


class RunningNode:
    """Takes what parents forward: record by record, or as batches."""

    receive: Receiver
    receive_batch: BatchReceiver
    is_columnar: bool
    """Whether batches are what it is made for."""

    def close(self) -> None:
        """Let go of what it holds."""

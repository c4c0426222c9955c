"""The interface of a running node to the nodes that forward to it."""

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
    """Whether the node is made for batches."""

    def close(self) -> None:
        """Release what the node holds."""

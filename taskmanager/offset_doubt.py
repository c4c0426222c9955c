"""Whether an offset is lost, or only a broker says so that is cut off from the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import (
    NonRetriableError,
    Partition,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.data import ReadError

SURE_AFTER_S = 30.0
SURE_ANSWERS = 6
"""How long, and how often, brokers must say that a topic does not have an offset or an epoch."""
GO_ON = (
    "Say where the task should continue: `pipeline pause`, then `pipeline reset` with "
    "--to-earliest --state clear to begin again, or with --to-offset N --state keep, and then "
    "`pipeline resume`"
)
"""Tells operators what to do."""


class _Agreement:
    """How many answers in a row have said the same, and for how long."""

    def __init__(self) -> None:
        self._since_s = 0.0
        self._answers = 0
        self._taken_s = 0.0

    def add(self) -> None:
        now_s = time.monotonic()
        if not self._answers:
            self._since_s = now_s
        self._answers += 1
        self._taken_s = now_s - self._since_s

    def end(self) -> None:
        self._answers = 0

    @property
    def is_sure(self) -> bool:
        return self._answers >= SURE_ANSWERS and self._taken_s >= SURE_AFTER_S

    def __str__(self) -> str:
        return (
            f"by {self._answers} answers in {self._taken_s:.0f} s; a broker that is cut off from "
            "the others may have given them, so they are asked again"
        )


class OffsetDoubt:
    """Follows the claim of a leader that a task's offset is not in its topic.

    A leader that the other brokers no longer reach does not know that it is none any more. It keeps
    answering from a log that ends too early, and to a client that asks it for metadata, it names
    itself. librdkafka ignores a leader whose epoch is older than one that it knows (KIP-320), but a
    new client knows none.

    So the task starts again, and each time, a client that knows no leader yet asks for the range of
    offsets; it picks one of the brokers at random to learn of the leaders. An offset before the
    oldest one is lost at once: that bound only grows, so a leader that is cut off gives an earlier
    one. An offset behind the end is lost once all answers of half a minute agree on that. So is one
    whose leader does not know the epoch of the records before it.
    """

    def __init__(self) -> None:
        self._claims: dict[Partition, ReadError] = {}
        self._out_of_range = _Agreement()
        self._unknown_epochs = _Agreement()

    @property
    def partitions(self) -> list[Partition]:
        """The partitions whose offsets are in doubt."""
        return list(self._claims)

    def claim(self, error: ReadError) -> EngineError:
        """Return a reason to start again for a leader's word that an offset is not there.

        For other errors, returns a `NonRetriableError`.
        """
        if not error.is_out_of_range:
            return NonRetriableError(str(error))
        self._claims[error.partition] = error
        return TransactionFailedError(f"{error}. Other brokers are asked, too")

    def weigh(
        self,
        positions: Mapping[Partition, int],
        oldest: Mapping[Partition, int],
        ends: Mapping[Partition, int],
    ) -> None:
        """Compare the offsets in doubt with what a new client was told.

        Raises `NonRetriableError` if one is lost, and `TransactionFailedError` while that is open.
        """
        for partition, error in list(self._claims.items()):
            if positions[partition] < oldest[partition]:
                raise NonRetriableError(str(error))
            if positions[partition] <= ends[partition]:
                del self._claims[partition]
        if not self._claims:
            self._out_of_range.end()
            return
        self._out_of_range.add()
        (partition, error), *_ = self._claims.items()
        if self._out_of_range.is_sure:
            raise NonRetriableError(str(error))
        raise TransactionFailedError(
            f"{error}. The topic ends at {ends[partition]}, before {positions[partition]}, "
            f"{self._out_of_range}"
        )

    def weigh_epochs(
        self, positions: Mapping[Partition, Committed], errors: Sequence[ReadError]
    ) -> None:
        """Judge what a new client was told of the epochs of positions (`PartitionReader.losses`).

        Raises `NonRetriableError` if records are lost, and `TransactionFailedError` while that is
        open. An epoch that no leader knows is one of another log: that of a topic of the same name
        in another cluster, or before it was deleted.
        """
        if not errors:
            self._unknown_epochs.end()
            return
        for error in errors:
            if not error.is_out_of_range:
                raise NonRetriableError(str(error))
            self._claims[error.partition] = error
        self._unknown_epochs.add()
        (topic, number), at = errors[0].partition, positions[errors[0].partition]
        found = (
            f"{topic}[{number}]: its leader does not know the epoch {at.leader_epoch} of the "
            f"records before the committed offset {at.offset}"
        )
        if self._unknown_epochs.is_sure:
            raise NonRetriableError(
                f"{found}: the offset comes from another cluster, or the topic was created again. "
                f'{GO_ON}; docs/how-to/troubleshoot.md, "Offsets of another cluster"'
            )
        raise TransactionFailedError(f"{found}, {self._unknown_epochs}")

"""Whether an offset is lost, or only a broker says so that is cut off from the others."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import (
    NonRetriableError,
    Partition,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.data import ReadError

SURE_AFTER_S = 30.0
SURE_ANSWERS = 6
"""How long, and how often, brokers must say that a topic ends before an offset."""


class OffsetDoubt:
    """Follows the claim of a leader that a task's offset is not in its topic.

    A leader that the other brokers no longer reach does not know that it is none any more. It keeps
    answering from a log that ends too early, and to a client that asks it for metadata, it names
    itself. librdkafka ignores a leader whose epoch is older than one that it knows (KIP-320), but a
    new client knows none.

    So the task starts again, and each time, a client that knows no leader yet asks for the range of
    offsets; it picks one of the brokers at random to learn of the leaders. An offset before the
    oldest one is lost at once: that bound only grows, so a leader that is cut off gives an earlier
    one. An offset behind the end is lost once all answers of half a minute agree on that.
    """

    def __init__(self) -> None:
        self._claims: dict[Partition, ReadError] = {}
        self._since_s = 0.0
        self._answers = 0

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
            self._answers = 0
            return
        now_s = time.monotonic()
        if not self._answers:
            self._since_s = now_s
        self._answers += 1
        (partition, error), *_ = self._claims.items()
        taken_s = now_s - self._since_s
        if self._answers >= SURE_ANSWERS and taken_s >= SURE_AFTER_S:
            raise NonRetriableError(str(error))
        raise TransactionFailedError(
            f"{error}. The topic ends at {ends[partition]}, before {positions[partition]}, by "
            f"{self._answers} answers in {taken_s:.0f} s; a broker that is cut off from the others "
            "may have given them, so they are asked again"
        )

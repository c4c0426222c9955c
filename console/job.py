"""The console's operations on the job; implemented with Kafka, and by a fake in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kafka_pipeline.operations.dead_letters import DeadLetter, LetterId, Wanted
from kafka_pipeline.operations.latest_letters import LetterList
from kafka_pipeline.operations.rehearsal.publication import Published
from kafka_pipeline.operations.starts import Start

Ask = Literal["pause", "resume", "restart"]
Deal = Literal["redrive", "purge"]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """The records of a topic to return, and how to read them.

    `limit` is 1 or more. If there are more records after `start`, the first ones are returned, or
    the last ones if `newest`. `key` and `value` are names of serdes. Without a partition, all
    partitions are read.
    """

    topic: str
    start: Start
    limit: int
    newest: bool = False
    partitions: Sequence[int] = ()
    key: str = "string"
    value: str = "string"


class Job(Protocol):
    """The job that the console belongs to. All methods wait for Kafka.

    They raise `ConfigError` for a name that the job does not have, `UnavailableError` if Kafka does
    not answer, and other `PipelineError`s if the job changes meanwhile.
    """

    def ask(self, what: Ask, processors: Sequence[str], *, dry_run: bool) -> dict[str, Any]:
        """Pause, resume or restart processors, all if none is named; return their names as JSON."""

    def deal(self, how: Deal, wanted: Wanted, *, dry_run: bool) -> dict[str, Any]:
        """Handle dead letters; return their number as JSON."""

    def letters(self) -> LetterList:
        """Return the newest dead letters; from one thread at a time."""

    def letter(self, id_: LetterId) -> DeadLetter:
        """Return one dead letter, without whether it was handled."""

    def rehearsal(self) -> Published | None:
        """Return the last rehearsal of a new version; `None` if there is none."""

    def records(self, query: RecordQuery) -> dict[str, Any]:
        """Return records of a topic as JSON."""

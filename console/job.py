"""What the console can do to the job; behind it is Kafka, or a fake in tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kafka_pipeline.operations.dead_letters import DeadLetter, LetterId, Wanted
from kafka_pipeline.operations.latest_letters import LetterList
from kafka_pipeline.operations.starts import Start

Ask = Literal["pause", "resume", "restart"]
Deal = Literal["redrive", "purge"]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records of a topic are wanted, and how they are read.

    `limit` is 1 or more; if there are more records from the `start` on, they are the first ones, or
    the `newest`. `key` and `value` are names of serdes. All partitions if none is named.
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

    They raise `ConfigError` for what the job does not have, `UnavailableError` if Kafka does not
    answer, and other `PipelineError`s if something changes meanwhile.
    """

    def ask(self, what: Ask, processors: Sequence[str], *, dry_run: bool) -> dict[str, Any]:
        """Ask something of processors, all if none is named; return JSON about which they are."""

    def deal(self, how: Deal, wanted: Wanted, *, dry_run: bool) -> dict[str, Any]:
        """Deal with dead letters; return JSON about how many they are."""

    def letters(self) -> LetterList:
        """Return the newest dead letters; from one thread at a time."""

    def letter(self, id_: LetterId) -> DeadLetter:
        """Return one dead letter, without whether it was dealt with."""

    def records(self, query: RecordQuery) -> dict[str, Any]:
        """Return records of a topic as JSON."""

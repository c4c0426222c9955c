"""A job without Kafka: it knows some dead letters and records, and notes what is asked of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.console.job import Ask, Deal, RecordQuery
from kafka_pipeline.operations.dead_letters import DeadLetter, LetterId, Wanted, ends
from kafka_pipeline.operations.latest_letters import LetterList
from kafka_pipeline.operations.rehearsal.publication import Published

TOPIC = "Clean_Price_shop"
DEAD = "Price_dead_letter_shop"
PROCESSORS = ("Clean", "Price", "Cities", "Audit")


def dead_letter(
    number: int, reason: str = "not an integer", error: str = "RecordRejected"
) -> DeadLetter:
    """A letter of the processor Price whose record is of the second `number`."""
    return DeadLetter(
        LetterId("Price", number % 4, number // 4),
        b"key %d" % number,
        b"value %d" % number,
        1_795_000_000_000 + number * 1000,
        [("source", b"web")],
        error,
        reason,
        "Price",
        "Traceback (most recent call last)",
        (TOPIC, number % 4, 1000 + number),
    )


@dataclass
class FakeJob:
    """See `kafka_pipeline.console.job.Job`. `block` keeps calls waiting until it is set."""

    dead: list[DeadLetter] = field(default_factory=lambda: [dead_letter(n) for n in range(10)])
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    queries: list[RecordQuery] = field(default_factory=list)
    reads: int = 0
    block: threading.Event | None = None
    rehearsed: Published | None = None
    rehearsal_reads: int = 0
    shown: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, what: Ask, processors: Sequence[str], *, dry_run: bool) -> dict[str, Any]:
        self._wait()
        for unknown in {id_.partition("_")[0] for id_ in processors} - {*PROCESSORS}:
            raise ConfigError(f'the job has no processor "{unknown}"')
        chosen = tuple(processors) or PROCESSORS
        if dry_run:
            return {"processors": list(chosen), "tasks": 4 * len(chosen)}
        self.asked.append((what, chosen))
        return {"processors": list(chosen), "tasks": 4 * len(chosen), "version": 3}

    def deal(self, how: Deal, wanted: Wanted, *, dry_run: bool) -> dict[str, Any]:
        self._wait()
        found = [each for each in self.dead if wanted.has(each) and not each.handled]
        if dry_run:
            before: dict[str, dict[str, int]] = {}
            for (processor, partition), offset in ends(found).items():
                before.setdefault(processor, {})[str(partition)] = offset
            by_processor = Counter(each.id.processor for each in found)
            return {"count": len(found), "by_processor": by_processor, "before": before}
        word = "redriven" if how == "redrive" else "purged"
        self.dead = [replace(e, handled=word) if e in found else e for e in self.dead]
        self.asked.append((how, tuple(str(each.id) for each in found)))
        return {"count": len(found)}

    def letters(self) -> LetterList:
        self._wait()
        self.reads += 1
        return LetterList(tuple(self.dead), {"Price": DEAD}, {"Price": 0})

    def letter(self, id_: LetterId) -> DeadLetter:
        for each in self.dead:
            if each.id == id_:
                return replace(each, handled="")
        raise ConfigError(f"there is no dead letter {id_}")

    def rehearsal(self) -> Published | None:
        self.rehearsal_reads += 1
        return self.rehearsed

    def records(self, query: RecordQuery) -> dict[str, Any]:
        self.queries.append(query)
        return {"records": self.shown}

    def _wait(self) -> None:
        if self.block is not None:
            assert self.block.wait(60)

"""Processors that take one batch with the records of all sources, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf

from kafka_pipeline.streams.engine.record_queues import Turn
from kafka_pipeline.streams.processor import BatchProcessor
from kafka_pipeline.streams.record import Batch


@dataclass(slots=True)
class MixedBatch(Batch):
    """Records of several topics, in their order; `topics` has that of each record."""

    topics: Sequence[str] = ()

    @staticmethod
    def of_turns(turns: Sequence[Turn]) -> MixedBatch:
        """Return records as they were read."""
        headers = None
        if any(batch.headers is not None for batch, _ in turns):
            headers = [None if batch.headers is None else batch.headers[at] for batch, at in turns]
        clocks = None
        if any(batch.clocks is not None for batch, _ in turns):
            clocks = [(batch.clocks or batch.timestamps)[at] for batch, at in turns]
        return MixedBatch(
            [batch.keys[at] for batch, at in turns],
            [batch.values[at] for batch, at in turns],
            [batch.timestamps[at] for batch, at in turns],
            headers,
            [batch.offsets[at] for batch, at in turns],
            clocks,
            [batch.topic for batch, _ in turns],
        )


class MixedProcessor(BatchProcessor):
    """A processor of the engine's own that takes the records of several sources as one batch.

    It gets a `MixedBatch` of bytes if its task has several partitions that must be put in order. It
    is the only child of each source, but for those of a `LookupTable`, or the child of another one.
    A call may take as long as one of Spark, so the records were accumulated.
    """


class LookupTable(BatchProcessor):
    """A processor of the engine's own that keeps the records of a source by key.

    It is the only child of its source. The `MixedProcessor` of its group looks up what it keeps
    under the keys of its own records, and nothing else.
    """

    history_ms: float = inf
    """How much older than the newest record a version may be that is looked up."""


@dataclass(slots=True)
class Run:
    """Records that go through a group at once: `updates` of tables, before all other `records`."""

    updates: dict[str, list[Turn]] = field(default_factory=dict)
    """By topic."""
    records: list[Turn] = field(default_factory=list)

    @property
    def latest_ms(self) -> int:
        """The largest timestamp."""
        turns = chain(self.records, *self.updates.values())
        return max(batch.timestamps[index] for batch, index in turns)


def runs_of(turns: Sequence[Turn], tables: Mapping[str, LookupTable]) -> Iterator[Run]:
    """Divide records, which are in order, into as few runs as possible; `tables` are by topic.

    An update goes ahead of earlier records unless they would see it, by their key, or could no
    longer see a version that it expires.
    """
    if not tables:
        yield Run(records=[*turns])
        return
    run, keys, oldest_ms = Run(), set[bytes | None](), inf
    for turn in turns:
        batch, index = turn
        key, time_ms = batch.keys[index], batch.timestamps[index]
        table = tables.get(batch.topic)
        if table is None:
            run.records.append(turn)
            keys.add(key)
            oldest_ms = min(oldest_ms, time_ms)
            continue
        if key in keys or time_ms - table.history_ms > oldest_ms:
            yield run
            run, keys, oldest_ms = Run(), set(), inf
        run.updates.setdefault(batch.topic, []).append(turn)
    yield run

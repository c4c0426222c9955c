"""Processors that take one batch with the records of all sources, in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """A processor of the engine's own that gets every `MixedBatch` of its group, as bytes.

    It is the only child of each source. A call may take as long as one of Spark, so the records
    were accumulated.
    """

"""Leads from one version of a pipeline to the next, or to rest, with nothing left in arcs.

A core: it says which processors to hold and which arcs to look at. The shell reports what it finds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.plan import Arc, arcs_to_drain


class VersionChange:
    """What is to be done before the next version of a pipeline may run, or all of it rests.

    An arc that is taken away, or gets other records, is drained first: its writers stop, then its
    reader processes what is left. A writer that reads such an arc itself stops once that is
    drained. If the arc stays, its reader stops then, too: what the new version writes there must
    not be read by the old one. All else runs on.

    None of this is remembered: another JobManager finds the same.
    """

    def __init__(self, before: Pipeline, after: Pipeline) -> None:
        self._arcs = tuple(arcs_to_drain(before, after))
        self._switching = {arc.reader for arc in self._arcs if arc.change}
        self._stopping = self._switching.union(*(arc.writers for arc in self._arcs))
        self._drained: set[str] = set()

    @classmethod
    def to_rest(cls, pipeline: Pipeline) -> VersionChange:
        """Return what is to be done to drain a pipeline: at the end, all processors are held.

        Those that nobody sends to stop first, and each other one when nothing comes any more.
        """
        drain = cls(pipeline, replace(pipeline, processors=()))
        drain._stopping = {processor.id for processor in pipeline.processors}
        return drain

    @property
    def left(self) -> tuple[Arc, ...]:
        """The arcs that are not known to be drained."""
        return tuple(arc for arc in self._arcs if arc.topic not in self._drained)

    @property
    def held(self) -> frozenset[str]:
        """The processors that have to stop."""
        readers = {arc.reader for arc in self.left}
        return frozenset(self._stopping - readers)

    def drainable(self, running: Collection[str]) -> tuple[Arc, ...]:
        """Return the arcs left to which nobody writes, given the processors that still run."""
        silent = self.held.difference(running)
        return tuple(arc for arc in self.left if silent.issuperset(arc.writers))

    def to_silence(self, running: Collection[str]) -> frozenset[str]:
        """Return the readers that must not read any more, given the processors that still run.

        Once all arcs are drained and these are known to be silent, `after` may run.
        """
        return frozenset() if self.left else frozenset(self._switching.difference(running))

    @property
    def is_complete(self) -> bool:
        """Whether `after` may run."""
        return not self.left and not self._switching

    def silenced(self, processor: str) -> None:
        """Note that no task of a processor that ran before can commit again."""
        self._switching.discard(processor)

    def drained(self, topic: str) -> None:
        """Note that the reader of an arc has processed all of it, and nobody can write to it."""
        self._drained.add(topic)

"""How far the tasks of a job have come in its inputs, and when all up to some offsets is done."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.group_positions import GroupPositions
from kafka_pipeline.common.kafka.offsets import Offsets
from kafka_pipeline.common.pipelines.pipeline import Pipeline

Targets: TypeAlias = Mapping[str, Mapping[Partition, int]]
"""Offsets to pass, by consumer group and partition."""


class JobPositions:
    """The committed positions of a job's processors, asked for again and again."""

    def __init__(self, config: Config, admin: Admin, pipeline: Pipeline) -> None:
        self._admin = admin
        self._askers = GroupPositions(config, admin)
        self._offsets = Offsets(config, admin)
        self._sources = _read(pipeline, from_arcs=False)
        self._arcs = _read(pipeline, from_arcs=True)
        self.hops = hops(pipeline)
        """Through how many arcs a record may go, one after the other."""
        self._committed: dict[str, dict[Partition, int]] = {}
        self._oldest = admin.oldest_offsets(self.sources)

    @property
    def sources(self) -> list[Partition]:
        """All partitions that come from outside."""
        return list(dict.fromkeys(place for its in self._sources.values() for place in its))

    def of_sources(self, ends: Mapping[Partition, int]) -> Targets:
        """Return the targets that are passed when all readers of sources are at these ends."""
        return {
            group: {place: ends[place] for place in places}
            for group, places in self._sources.items()
        }

    def of_arcs(self) -> Targets:
        """Return the targets that are passed when all that is in arcs now was processed."""
        places = [place for its in self._arcs.values() for place in its]
        ends = self._admin.high_watermarks(places) if places else {}
        return {group: {place: ends[place] for place in its} for group, its in self._arcs.items()}

    def unread(self, targets: Targets) -> Targets:
        """Return the targets that are not passed. Raises `EngineError` if Kafka does not answer.

        The last offsets before a target may be markers of transactions: readers commit records
        only. So where a reader stays, this looks whether a record follows.
        """
        left: dict[str, Mapping[Partition, int]] = {}
        former = {group: dict(known) for group, known in self._committed.items()}
        positions = self._ask(targets)
        for group, ends in targets.items():
            before, at = former.get(group, {}), positions[group]
            behind = {place: at[place] for place, end in ends.items() if at[place] < end}
            resting = {place: its for place, its in behind.items() if before.get(place) == its}
            first = self._offsets.first_records(resting) if resting else {}
            waiting = {
                place: ends[place]
                for place in behind
                if place not in first or first[place].offset < ends[place]
            }
            if waiting:
                left[group] = waiting
        return left

    def read_offsets(self) -> dict[Partition, int]:
        """Return how far sources were read by the processor that is furthest behind in each."""
        found: dict[Partition, int] = {}
        for positions in self._ask(self._sources).values():
            for place, at in positions.items():
                found[place] = min(found.get(place, at), at)
        return found

    def close(self) -> None:
        """Disconnect."""
        self._askers.committed({})

    def _ask(self, wanted: Mapping[str, Collection[Partition]]) -> dict[str, dict[Partition, int]]:
        """Return where groups are: where they were before if Kafka does not answer now."""
        for group, found in self._askers.committed(wanted).items():
            known = self._committed.setdefault(group, {})
            known.update({place: at.offset for place, at in found.items()})
        return {
            group: {
                place: self._committed.get(group, {}).get(place, self._oldest.get(place, 0))
                for place in places
            }
            for group, places in wanted.items()
        }


class Passage:
    """A job on its way past offsets of its sources, with all that comes of it between processors.

    When the sources are read up to there, what comes of it is in arcs, before the ends that these
    have then; and so on, from one arc to the next.
    """

    def __init__(self, job: JobPositions, ends: Mapping[Partition, int]) -> None:
        self._job = job
        self._left = job.of_sources(ends)
        self._hops = job.hops

    def advance(self) -> bool:
        """Look how far the job is; return whether it is through. Raises as `unread`."""
        while True:
            self._left = self._job.unread(self._left)
            if self._left:
                return False
            if self._hops == 0:
                return True
            self._hops -= 1
            self._left = self._job.of_arcs()


def hops(pipeline: Pipeline) -> int:
    """Return through how many arcs a record may go, one after the other.

    In a loop, as of a foreign-key join, processors answer each other: an arc that leads back is
    passed once.
    """
    order = {each.id: number for number, each in enumerate(pipeline.processors)}
    depth = dict.fromkeys(order, 0)
    back = 0
    for processor in pipeline.processors:
        for reader in _readers(pipeline, processor.id):
            if order[reader] > order[processor.id]:
                depth[reader] = max(depth[reader], depth[processor.id] + 1)
            else:
                back += 1
    longest = max(depth.values(), default=0)
    return longest + back * (longest + 1)


def _readers(pipeline: Pipeline, processor_id: str) -> Iterator[str]:
    arcs = pipeline.arcs
    for topic in pipeline.out_topics(pipeline.processor(processor_id)):
        if topic in arcs:
            yield arcs[topic]


def _read(pipeline: Pipeline, *, from_arcs: bool) -> dict[str, list[Partition]]:
    """Return the partitions that each consumer group reads, of arcs or of sources."""
    arcs = pipeline.arcs
    found: dict[str, list[Partition]] = {}
    for each in pipeline.processors:
        places = [
            place
            for topic in pipeline.in_topics(each)
            if (topic in arcs) is from_arcs
            for place in pipeline.places(topic)
        ]
        if places:
            found[pipeline.names.consumer_group(each.id)] = places
    return found

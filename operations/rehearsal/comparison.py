"""Reads the results of a job and of its shadow as they come, and judges them round by round.

A round begins with the ends of all outputs, and then the ends of all sources. When both versions
have processed the sources up to there, with all that comes of it between processors, and what both
have written by then was read, each result before the first ends has had its chance to find its
counterpart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topic_names import BULK_GROUP
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher
from kafka_pipeline.operations.dead_letters import HANDLED
from kafka_pipeline.operations.rehearsal.comparer import Comparer, Output, Side
from kafka_pipeline.operations.rehearsal.passage import JobPositions, Passage
from kafka_pipeline.operations.rehearsal.report import Figures, Report

_MOST_RECORDS = 5_000
_FETCH_WAIT_S = 0.05
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Version:
    """A job that takes part: its config.yaml, what it runs, and where its outputs begin."""

    config: Config
    pipeline: Pipeline
    begins: Mapping[Partition, int]


@dataclass(slots=True)
class _Round:
    """A round: what is to be judged, and by when both versions are through with it."""

    begun_ms: int
    to_judge: Mapping[Side, Mapping[Partition, int]]
    passages: Mapping[Side, Passage]
    is_passed: dict[Side, bool] = field(default_factory=lambda: dict.fromkeys(Side, False))
    to_read: Mapping[Side, Mapping[Partition, int]] | None = None


class Comparison:
    """The comparison of a job with its shadow; for one thread."""

    def __init__(
        self, admin: Admin, versions: Mapping[Side, Version], outputs: Sequence[Output]
    ) -> None:
        """Begin. Raises `UnavailableError` if Kafka does not answer."""
        self.comparer = Comparer(outputs)
        self.notes: list[str] = []
        self._admin = admin
        self._versions = versions
        letters = {each.topic(side) for each in outputs if not each.is_sink for side in Side}
        self._letters = letters - {None}
        self._jobs = {
            side: JobPositions(its.config, admin, its.pipeline) for side, its in versions.items()
        }
        self._watchers = {side: ClusterWatcher(its.config) for side, its in versions.items()}
        self._readers: dict[Side, PartitionReader] = {}
        for side, its in versions.items():
            self._readers[side] = PartitionReader(its.config, BULK_GROUP)
            self._readers[side].assign(its.begins)
        self._sources = list(dict.fromkeys([p for job in self._jobs.values() for p in job.sources]))
        self._began_s = time.monotonic()
        self._first = {side: job.read_offsets() for side, job in self._jobs.items()}
        self._number = self._running_version()
        self._has_ended = False
        self._round: _Round | None = None
        self._looked_s = 0.0
        self._caught_up: Figures | None = None
        self._compared_until_ms: int | None = None

    def status(self, side: Side) -> ClusterStatus:
        """Return what the daemons of a version report."""
        watcher = self._watchers[side]
        watcher.read(0)
        return watcher.status()

    def failed(self, side: Side) -> list[str]:
        """Return the tasks of a version that have FAILED, with the reasons."""
        return [f"{info.task}: {info.reason}" for info in self.status(side).failed]

    def go_on(self, is_over: Callable[[], bool]) -> None:
        """Compare until `is_over`, which is called about ten times a second, or until it must end.

        It ends early if a task of the shadow has FAILED, or if the job has got another version.
        Raises `UnavailableError` if Kafka does not answer.
        """
        while not is_over() and not self._has_ended:
            self._turn()

    def finish(self, is_over: Callable[[], bool]) -> None:
        """Go on until all that is in the sources by now is judged, or until `is_over`.

        Raises as `go_on`.
        """
        begun_ms = wall_clock_ms()

        def is_judged() -> bool:
            return (self._compared_until_ms or 0) >= begun_ms

        self.go_on(lambda: is_judged() or is_over())
        if not is_judged():
            self.notes.append(
                "the latest records were not compared: the job or its shadow had not processed them"
            )

    def report(self, job: str, old_version: int, rested_ms: int) -> Report:
        """Return what was found so far. Raises as `go_on`."""
        with _answered():
            figures = {side: self._figures(side) for side in Side}
        return Report(
            job=job,
            old_version=old_version,
            rested_ms=rested_ms,
            compared_until_ms=self._compared_until_ms,
            tallies=self.comparer.tallies,
            waiting={side: self.comparer.waiting(side) for side in Side},
            judged_early=self.comparer.judged_early,
            figures=figures,
            catching_up=self._caught_up,
            failed={side: self.failed(side) for side in Side},
            notes=tuple(self.notes),
        )

    def close(self) -> None:
        """Disconnect."""
        for side in Side:
            self._readers[side].close()
            self._watchers[side].close()
            self._jobs[side].close()

    def _turn(self) -> None:
        with _answered():
            for side in Side:
                self._read(side)
            if time.monotonic() - self._looked_s >= _LOOK_S:
                self._look()
                self._looked_s = time.monotonic()

    def _read(self, side: Side) -> None:
        """Read results of a version, unless the other one is to come first."""
        if not self._versions[side].begins:
            return
        if self.comparer.is_full(side):
            if self.comparer.is_full(side.other):
                self.comparer.judge_early()
            return
        fetched = self._readers[side].fetch(_MOST_RECORDS, _FETCH_WAIT_S)
        for (topic, number), reason, _ in fetched.errors:
            raise UnavailableError(f"{topic}[{number}] cannot be read: {reason}")
        for batch in fetched.batches:
            self.comparer.take(side, self._without_notes(batch))

    def _without_notes(self, batch: RecordBatch) -> RecordBatch:
        """Return dead letters without the notes among them that say how others were dealt with."""
        if batch.topic not in self._letters or batch.headers is None:
            return batch
        return batch.only(
            [
                index
                for index, headers in enumerate(batch.headers)
                if all(name != HANDLED for name, _ in headers or ())
            ]
        )

    def _look(self) -> None:
        """Begin a round, or see how far it is."""
        found = self._round
        if self.failed(Side.NEW):
            self._has_ended = True
        elif found is None:
            self._begin_round()
        else:
            self._go_through(found)

    def _go_through(self, found: _Round) -> None:
        if found.to_read is None:
            for side, passage in found.passages.items():
                found.is_passed[side] = found.is_passed[side] or passage.advance()
            if not all(found.is_passed.values()):
                return
            self._caught_up = self._caught_up or self._figures(Side.NEW)
            found.to_read = {
                side: self._admin.high_watermarks(list(its.begins)) if its.begins else {}
                for side, its in self._versions.items()
            }
        is_read = {
            side: all(self._readers[side].positions[place] >= end for place, end in ends.items())
            for side, ends in found.to_read.items()
        }
        for side in Side:
            if is_read[side.other]:
                self.comparer.settle(side, found.to_judge[side])
        if all(is_read.values()):
            self._compared_until_ms = found.begun_ms
            self._round = None

    def _begin_round(self) -> None:
        number = self._running_version()
        if number != self._number:
            self.notes.append(f"the job runs version {number} now: it was compared until then")
            self._has_ended = True
            return
        # In this order: what is in the outputs comes of what is before the ends of the sources.
        begun_ms = wall_clock_ms()
        to_judge = {
            side: self._admin.stable_ends(list(its.begins)) if its.begins else {}
            for side, its in self._versions.items()
        }
        ends = self._admin.high_watermarks(self._sources)
        passages = {side: Passage(job, ends) for side, job in self._jobs.items()}
        self._round = _Round(begun_ms, to_judge, passages)

    def _running_version(self) -> int | None:
        wish = read_deployment(self._versions[Side.OLD].config, self._admin).wish
        return None if wish is None else wish.version

    def _figures(self, side: Side) -> Figures:
        at = self._jobs[side].read_offsets()
        ends = self._admin.high_watermarks(list(at))
        first = self._first[side]
        return Figures(
            read=sum(at[place] - first[place] for place in at),
            seconds=time.monotonic() - self._began_s,
            lag=sum(max(ends[place] - offset, 0) for place, offset in at.items()),
        )


@contextmanager
def _answered() -> Iterator[None]:
    """Raise `UnavailableError` if Kafka does not answer."""
    try:
        yield
    except EngineError as error:
        raise UnavailableError(f"the results cannot be compared: {error}") from error

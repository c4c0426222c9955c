"""Computes the state of processors from history, round by round, while the records go on.

Each round takes the records from where the last one ended, and goes on from the state that it left.
What processors send to others outside of the plan is not kept. A round that was interrupted is
completed by the next process, up to the same offsets.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.references import HostReferences
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.backfill.kafka import ReadPartition
from kafka_pipeline.streams.backfill.kept_state import saved_state
from kafka_pipeline.streams.backfill.runner import Runner
from kafka_pipeline.streams.backfill.stage import Round, StageTask, Topics
from kafka_pipeline.streams.backfill.tasks import Done, remove_unfinished, require_runs
from kafka_pipeline.streams.backfill.work import held, read_json, write_json
from kafka_pipeline.streams.pipeline.units import valued

Reach = Mapping[str, Mapping[str, Sequence[int]]]
"""Offsets by processor, by source that it reads, and by partition."""

Times = Mapping[str, Mapping[str, Sequence[int]]]
"""What steps have reached in event time: by processor, store and task; -1 if nothing."""

_ABOUT = "rounds.json"


@dataclass(frozen=True, slots=True)
class RoundsPlan:
    """What is computed: the replicas of each processor, writers before their readers.

    `internal` are the topics between these processors. All their other inputs are read from Kafka.
    `identity` are JSON values; if they change, what was computed before is of no use.
    """

    config: Config
    pipeline: Pipeline
    stages: Sequence[Sequence[ProcessorReplica]]
    internal: frozenset[str]
    identity: Mapping[str, Any]


class Rounds:
    """The rounds so far, in a work folder; see `opened_rounds`."""

    def __init__(self, plan: RoundsPlan, folder: Path, starts: Reach, runner: Runner) -> None:
        self._plan = plan
        self._config = plan.config.for_executors
        self._folder = folder
        self._runner = runner
        about = read_json(folder / _ABOUT)
        self._about: dict[str, Any] = about or {"attempt": 0, "identity": None}
        # Records that the next round needs may be gone since.
        if self._about["identity"] != plan.identity or _goes_back(starts, self._about["at"]):
            self._about = {"attempt": self._about["attempt"], "identity": plan.identity}
            self._begin_again(_plain(starts))
        for path in folder.glob("round-*"):
            remove_unfinished(path)

    @property
    def starts(self) -> Reach:
        """Where the first round began."""
        found: Reach = self._about["starts"]
        return found

    def advance(self, ends: Reach, reached: Times) -> int:
        """Compute up to these offsets; return how many records of sources were read for that.

        Steps behind other processors end at the times that they have `reached` in the running job,
        where these are known, and else with the writer that is behind.
        Begins again if offsets have gone back since. Raises `UnavailableError` if records are gone
        or Kafka does not deliver them, and `PipelineError` if a processor rejects a record under
        `on_error: fail`.
        """
        read = 0
        if "going" in self._about:
            read += self._complete()
        if _goes_back(self._about["at"], ends):
            self._begin_again(self._about["starts"])
        # Without the second comparison, windows that have closed since would be open.
        if self._about["at"] != _plain(ends) or self._about.get("reached", {}) != _plain(reached):
            self._change(going=_plain(ends), reached=_plain(reached), now_ms=wall_clock_ms())
            read += self._complete()
        return read

    def state(self, replica: ProcessorReplica, store: str) -> Iterator[RecordBatch]:
        """Yield the records for a task's state topic, as of the last round."""
        if self._about["number"]:
            folder = self._task_folder(self._about["number"], replica)
            yield from saved_state(folder, store, replica.task.partition)

    def times(self, replica: ProcessorReplica) -> Mapping[str, int]:
        """Return the largest timestamp that a task has processed of each input, by topic."""
        if not self._about["number"]:
            return {}
        done = require_runs(self._task_folder(self._about["number"], replica))
        return done.times

    def _begin_again(self, starts: Reach) -> None:
        # Folders of former attempts may outlast this process, so that names must differ.
        attempt = self._about["attempt"] + 1
        self._change(attempt=attempt, starts=starts, number=0, at=starts, reached={})
        for path in self._folder.glob("round-*"):
            shutil.rmtree(path)

    def _complete(self) -> int:
        """Do what is missing of the round that was begun."""
        about, number = self._about, self._about["number"] + 1
        folder = self._round_folder(number)
        self._runner.folders.clear()
        read = self._read(folder, about["at"], about["going"])
        topics = Topics(self._plan.config.parallelism, self._plan.pipeline.partitions)
        clocks: dict[str, int] = {}
        for stage in self._plan.stages:
            for done in self._process(stage, topics, number, clocks):
                for topic, clock in done.clocks.items():
                    # A task without records holds nobody back, as an idle one does not.
                    if clock >= 0:
                        clocks[topic] = min(clock, clocks.get(topic, clock))
        about.pop("now_ms")
        self._change(number=number, at=about.pop("going"))
        for path in (*folder.glob("read-*"), self._round_folder(number - 1)):
            shutil.rmtree(path, ignore_errors=True)
        return read

    def _read(self, folder: Path, starts: Reach, ends: Reach) -> int:
        """Read each source once, for all processors that take records from it."""
        read = 0
        for topic in sorted({topic for its in ends.values() for topic in its}):
            readers = [name for name, its in ends.items() if topic in its]
            spans = zip(
                zip(*(starts[name][topic] for name in readers), strict=True),
                zip(*(ends[name][topic] for name in readers), strict=True),
                strict=True,
            )
            ranges = [(min(firsts), max(lasts)) for firsts, lasts in spans]
            tasks = [
                ReadPartition(
                    folder / f"read-{topic}" / f"{n:06}", self._config, topic, topic, n, first, last
                )
                for n, (first, last) in enumerate(ranges)
                if first < last
            ]
            total = sum(last - first for first, last in ranges)
            found = self._runner.do(f"read {topic}", tasks, total)
            read += sum(done.records_in for done in found)
        return read

    def _process(
        self,
        stage: Sequence[ProcessorReplica],
        topics: Topics,
        number: int,
        clocks: Mapping[str, int],
    ) -> list[Done]:
        starts, ends = self._about["at"], self._about["going"]
        references = HostReferences(self._plan.config.secrets)
        tasks = []
        for replica in stage:
            part = replica.task.partition
            before = self._task_folder(number - 1, replica) if number > 1 else None
            ranges = {
                topic: (starts[replica.name][topic][part], its[part])
                for topic, its in ends.get(replica.name, {}).items()
                if topic in replica.in_topics
            }
            times = self._about.get("reached", {}).get(replica.name, {})
            reached = {store: of_tasks[part] for store, of_tasks in times.items()}
            tasks.append(
                StageTask(
                    folder=self._task_folder(number, replica),
                    config=self._config,
                    # Here, since executors on other hosts have neither these variables nor files.
                    replica=valued(replica, references, self._config.tables),
                    inputs={
                        topic: self._runner.input(topic, part, keeps_offsets=topic in ranges)
                        for topic in replica.in_topics
                    },
                    followed={},
                    topics=topics,
                    now_ms=self._about["now_ms"],
                    round=Round(before, ranges, self._plan.internal, clocks, reached),
                )
            )
        return self._runner.do_stage(tasks, None)

    def _task_folder(self, number: int, replica: ProcessorReplica) -> Path:
        return self._round_folder(number) / f"stage-{replica.name}" / str(replica.task)

    def _round_folder(self, number: int) -> Path:
        return self.folder(str(number))

    def folder(self, name: str) -> Path:
        """Return a folder for what is made of the rounds; it goes if they begin again."""
        return self._folder / f"round-{self._about['attempt']}-{name}"

    def _change(self, **values: Any) -> None:
        self._about |= values
        write_json(self._folder / _ABOUT, self._about)


@contextmanager
def opened_rounds(
    plan: RoundsPlan, folder: Path, starts: Reach, runner: Runner
) -> Iterator[Rounds]:
    """Hold the work folder of rounds, which begin at `starts` unless the folder has some already.

    Those begin again if records before `starts` are missing in them: such records may be gone.
    Raises `ConfigError` if another process holds it.
    """
    with held(folder):
        yield Rounds(plan, folder, starts, runner)


def _plain(reach: Reach) -> dict[str, dict[str, list[int]]]:
    return {name: {topic: [*its] for topic, its in all_.items()} for name, all_ in reach.items()}


def _goes_back(at: Reach, ends: Reach) -> bool:
    return any(
        end < before
        for name, its in ends.items()
        for topic, offsets in its.items()
        for before, end in zip(at[name][topic], offsets, strict=True)
    )

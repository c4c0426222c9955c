"""The event time of the tasks of a PipelineThread behind topics, asked outside of its loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from common.committed import Committed
from common.config import Config
from common.event_time import EventTimeSpec, Writer
from common.kafka.clients import Partition
from common.tasks import TaskId
from streams.event_time.input_time import InputTime, Mark
from streams.event_time.progress import UNKNOWN, Progress
from streams.event_time.writer_progress import Answers, Holder, WriterProgress

LEAST_INTERVAL_S = 0.1
_SHARE = 4
"""A look is followed by a pause of at least this many times as long as it took."""

logger = structlog.get_logger()


class Brokers(Protocol):
    """The brokers' answers, where they gave any; `GroupPositions` asks them."""

    def committed(
        self, group: str, partitions: Collection[Partition]
    ) -> Mapping[Partition, Committed] | None:
        """Return the committed positions of a group, `None` without an answer."""

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the high watermarks of partitions."""

    def starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offsets of the oldest records of partitions."""

    def keep_only(self, groups: Collection[str]) -> None:
        """Release what belongs to other groups."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A task, the writers of its internal inputs, and what it knows of them."""

    writers: Mapping[Partition, tuple[Writer, ...]]
    input_time: InputTime


class TimeWatch:
    """Finds out how far the writers of the tasks' internal inputs are.

    In this order: what the writers' groups have committed, with how far each task was then, and
    then the high watermarks of the inputs. All that the writers had sent by then is before these
    marks, so a task that has processed them is as far as the writers were
    (`streams.event_time.input_time`). High watermarks, and not last stable offsets: the markers of
    a transaction may be written after its offsets are seen.

    One request for each group that writes, and one or two for offsets, whatever the number of
    tasks. Any thread may call any method. Only `look` blocks.
    """

    def __init__(
        self, config: Config, brokers: Brokers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names = config.topic_names
        self._brokers = brokers
        self._clock = clock
        self._progress = WriterProgress(config.idle_after_ms)
        self._changing = threading.Lock()
        self._tasks: dict[TaskId, _Watched] = {}
        self._holders: dict[TaskId, tuple[Holder, ...]] = {}
        self._newest_ms: dict[TaskId, int] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start asking the brokers, in a separate thread."""
        threading.Thread(target=self._run, name="event time", daemon=True).start()

    def close(self) -> None:
        """End after the look that is in progress; does not wait."""
        self._stopped.set()

    def watch(self, task: TaskId, spec: EventTimeSpec, input_time: InputTime) -> None:
        """Let a task know how far its inputs are, until it is forgotten."""
        writers = {(topic, task.partition): of_topic for topic, of_topic in spec.writers.items()}
        if not writers:
            return
        with self._changing:
            self._tasks[task] = _Watched(writers, input_time)

    def forget(self, task: TaskId, input_time: InputTime | None) -> None:
        """Stop watching a task, unless it has started again."""
        with self._changing:
            watched = self._tasks.get(task)
            if watched is not None and watched.input_time is input_time:
                del self._tasks[task]
                self._holders.pop(task, None)
                self._newest_ms.pop(task, None)

    def holders(self, task: TaskId) -> tuple[Holder, ...]:
        """Return the tasks that held back the event time of a task at the last look."""
        with self._changing:
            return self._holders.get(task, ())

    def newest_ms(self, task: TaskId) -> int:
        """Return the largest timestamp that writers of a task's input have processed, or -1."""
        with self._changing:
            return self._newest_ms.get(task, UNKNOWN)

    def look(self) -> None:
        """Ask the brokers. Blocks for some milliseconds, for seconds if they are slow."""
        with self._changing:
            tasks = dict(self._tasks)
        topics: dict[str, tuple[Writer, ...]] = {}
        marks: dict[Partition, None] = {}
        for watched in tasks.values():
            for partition, writers in watched.writers.items():
                topics[partition[0]] = writers
                marks[partition] = None
        answers = self._answers([w for each in topics.values() for w in each], marks)
        now_ms = int(self._clock() * 1000)
        known: dict[str, tuple[Progress, Progress]] = {}
        holders: dict[str, list[Holder]] = {}
        newest: dict[str, int] = {}
        for topic, writers in topics.items():
            known[topic] = self._known(writers, answers, now_ms)
            holders[topic] = self._progress.holders(writers, answers, now_ms)
            newest[topic] = _newest_ms(writers, answers)
        for task, watched in tasks.items():
            watched.input_time.learn(
                {
                    partition: Mark(answers.ends[partition], *known[partition[0]])
                    for partition in watched.writers
                    if partition in answers.ends
                }
            )
            held = [each for topic, _ in watched.writers for each in holders[topic]]
            with self._changing:
                if task in self._tasks:
                    held.sort(key=lambda each: each.time_ms)
                    self._holders[task] = tuple(held)
                    self._newest_ms[task] = max(newest[topic] for topic, _ in watched.writers)

    def _known(
        self, writers: Sequence[Writer], answers: Answers, now_ms: int
    ) -> tuple[Progress, Progress]:
        found = foreign = self._progress.of(writers, answers, now_ms)
        if any(writer.feedback for writer in writers):
            foreign = self._progress.of(writers, answers, now_ms, with_feedback=False)
        return found, foreign

    def _answers(self, writers: Collection[Writer], marks: Collection[Partition]) -> Answers:
        inputs: dict[str, dict[Partition, None]] = {}
        for writer in writers:
            of_writer = inputs.setdefault(writer.processor, {})
            for topic, count in writer.inputs.items():
                of_writer |= {(topic, number): None for number in range(count)}
        committed: dict[str, Mapping[Partition, Committed]] = {}
        new: dict[Partition, None] = {}
        for processor, partitions in inputs.items():
            found = self._brokers.committed(self._names.consumer_group(processor), partitions)
            if found is not None:
                committed[processor] = found
                new |= {partition: None for partition in partitions if partition not in found}
        self._brokers.keep_only([self._names.consumer_group(each) for each in inputs])
        starts = self._brokers.starts(new)
        # Last, so that what was sent ahead of the commits is before these ends.
        read = {partition for of_writer in inputs.values() for partition in of_writer}
        return Answers(committed, starts, self._brokers.ends(read.union(marks)))

    def _run(self) -> None:
        while True:
            began_s = self._clock()
            try:
                self.look()
            except Exception:
                logger.exception("event time is not known")
            took_s = self._clock() - began_s
            if self._stopped.wait(max(LEAST_INTERVAL_S, _SHARE * took_s)):
                return


def _newest_ms(writers: Collection[Writer], answers: Answers) -> int:
    """Return the largest timestamp that the tasks of some processors have processed."""
    committed = [answers.committed.get(writer.processor, {}) for writer in writers]
    return max((at.time_ms for found in committed for at in found.values()), default=UNKNOWN)

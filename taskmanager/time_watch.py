"""Finds the event time of the internal inputs of a PipelineThread's tasks, outside of its loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import structlog

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, Writer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.input_time import InputTime, Mark
from kafka_pipeline.streams.event_time.progress import UNKNOWN, Progress
from kafka_pipeline.streams.event_time.writer_progress import (
    Answers,
    Holder,
    TopicProgress,
    WriterProgress,
)

LEAST_INTERVAL_S = 0.1
_PAUSES = 4
"""A look is followed by a pause of at least this many times as long as it took."""
_MOST_WAIT_S = 5.0
"""But of no more than this because of brokers that do not answer: others may have taken over."""
_CPU_PAUSES = 85
"""The pause is also this many times the CPU time of the look: the brokers need about as much, and
neither should spend more than 2 % of a core on event time, however many tasks there are."""

_NOTHING = Mark(0, Progress(), Progress())

_Topic = tuple[str, str]
"""A processor and a topic that it reads; different readers may see a topic's progress
differently."""

logger = structlog.get_logger()


class PositionAsker(Protocol):
    """The brokers' answers, without those that are missing; `GroupPositions` asks them."""

    def committed(
        self, wanted: Mapping[str, Collection[Partition]]
    ) -> Mapping[str, Mapping[Partition, Committed]]:
        """Return the committed positions of these groups; they are the only ones to come."""

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the high watermarks of partitions."""

    def starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offsets of the oldest records of partitions."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A task, the writers of its internal inputs, and the event time of its inputs."""

    spec: EventTimeSpec
    input_time: InputTime


class TimeWatch:
    """Finds the progress of the writers of the tasks' internal inputs.

    In this order: the committed positions of the writers' groups, with the progress of each task,
    and then the high watermarks of the inputs. All results that the writers had sent by then lie
    before these marks, so a task that has processed them has the writers' progress
    (`streams.event_time.input_time`). High watermarks, and not last stable offsets: the markers of
    a transaction may be written after its offsets are visible.

    One request for each group that writes, and one or two for offsets, whatever the number of
    tasks. What has no answer holds back only the tasks that need it, until the next look. Any
    thread may call any method. Only `look` blocks.
    """

    def __init__(
        self, config: Config, brokers: PositionAsker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names = config.topic_names
        self._brokers = brokers
        self._clock = clock
        self._progress = WriterProgress(config.idle_after_ms)
        self._changing = threading.Lock()
        self._tasks: dict[TaskId, _Watched] = {}
        self._known: dict[_Topic, TopicProgress] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start asking the brokers, in a separate thread."""
        threading.Thread(target=self._run, name="event time", daemon=True).start()

    def close(self) -> None:
        """End after the current look; does not wait."""
        self._stopped.set()

    def watch(self, task: TaskId, spec: EventTimeSpec, input_time: InputTime) -> None:
        """Keep a task informed of the progress of its inputs, until it is forgotten."""
        if not spec.writers:
            return
        with self._changing:
            self._tasks[task] = _Watched(spec, input_time)

    def forget(self, task: TaskId, input_time: InputTime | None) -> None:
        """Stop watching a task, unless it has started again."""
        with self._changing:
            watched = self._tasks.get(task)
            if watched is not None and watched.input_time is input_time:
                del self._tasks[task]

    def holders(self, task: TaskId) -> tuple[Holder, ...]:
        """Return the tasks that held back the event time of a task at the last look."""
        found = chain.from_iterable(at.holders for at in self._topics(task))
        return tuple(sorted(found, key=lambda each: each.time_ms))

    def newest_ms(self, task: TaskId) -> int:
        """Return the largest timestamp that writers of a task's input have processed, or -1."""
        return max((at.newest_ms for at in self._topics(task)), default=UNKNOWN)

    def _topics(self, task: TaskId) -> list[TopicProgress]:
        """Return the progress, at the last look, of the internal topics that a task reads."""
        with self._changing:
            watched, known = self._tasks.get(task), self._known
        topics = [(task.processor, topic) for topic in watched.spec.writers] if watched else []
        return [known[topic] for topic in topics if topic in known]

    def look(self) -> None:
        """Ask the brokers. Blocks for some milliseconds, for seconds if they are slow."""
        with self._changing:
            tasks = dict(self._tasks)
        topics: dict[_Topic, EventTimeSpec] = {}
        marks: dict[Partition, None] = {}
        for task, watched in tasks.items():
            for topic in watched.spec.writers:
                topics[task.processor, topic] = watched.spec
                marks[topic, task.partition] = None
        answers = self._answers([w for spec in topics.values() for w in spec.all_writers], marks)
        now_ms = int(self._clock() * 1000)
        known = {
            (reader, topic): self._progress.of(
                topic, spec.writers[topic], answers, now_ms, {**spec.writers, **spec.upstream}
            )
            for (reader, topic), spec in topics.items()
        }
        self._known = known
        for task, watched in tasks.items():
            new = {}
            for topic in watched.spec.writers:
                partition = (topic, task.partition)
                end, at = answers.ends.get(partition), known[task.processor, topic]
                # Of an input whose end is unknown, it is also unknown whether it is idle.
                new[partition] = _NOTHING if end is None else Mark(end, at.progress, at.foreign)
            watched.input_time.learn(new)

    def _answers(self, writers: Collection[Writer], marks: Collection[Partition]) -> Answers:
        inputs: dict[str, dict[Partition, None]] = {}
        for writer in writers:
            of_writer = inputs.setdefault(writer.processor, {})
            for topic, count in writer.inputs.items():
                of_writer |= {(topic, number): None for number in range(count)}
        groups = {self._names.consumer_group(processor): processor for processor in inputs}
        found = self._brokers.committed({group: inputs[of] for group, of in groups.items()})
        committed = {groups[group]: positions for group, positions in found.items()}
        new = {
            partition
            for processor, positions in committed.items()
            for partition in inputs[processor]
            if partition not in positions
        }
        starts = self._brokers.starts(new)
        # Last, so that all records sent before the commits are before these ends.
        read = {partition for of_writer in inputs.values() for partition in of_writer}
        return Answers(committed, starts, self._brokers.ends(read.union(marks)))

    def _run(self) -> None:
        while True:
            began_s, cpu_began_s = self._clock(), time.thread_time()
            try:
                self.look()
            except Exception:
                logger.exception("event time is not known")
            took_s, cpu_s = self._clock() - began_s, time.thread_time() - cpu_began_s
            if self._stopped.wait(pause_s(took_s, cpu_s)):
                return


def pause_s(took_s: float, cpu_s: float) -> float:
    """Return the pause after a look that took that long, and that much CPU time."""
    return max(LEAST_INTERVAL_S, min(_PAUSES * took_s, _MOST_WAIT_S), _CPU_PAUSES * cpu_s)

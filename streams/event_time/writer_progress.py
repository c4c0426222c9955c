"""How far the writers of a topic are, from what they have committed and what is unread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from kafka_pipeline.common.committed import Committed, InputProgress, topic_mark
from kafka_pipeline.common.pipelines.event_time import Writer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.progress import (
    UNKNOWN,
    PartProgress,
    Progress,
    combined,
    holding,
)

_MOST_SILENT = 10

Partition = tuple[str, int]


class Answers(NamedTuple):
    """What the brokers said: first the committed positions by processor, then offsets.

    `ends` are the high watermarks of what the writers read, and `starts` the oldest offsets of what
    they have never committed. Partitions of which nothing is known are left out.
    """

    committed: Mapping[str, Mapping[Partition, Committed]]
    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]


class Holder(NamedTuple):
    """A task that holds event time back, as it has not passed on everything yet.

    `unread` is how many offsets are left of its input, 0 if that is held back itself, and None
    while nobody knows.
    """

    task: TaskId
    time_ms: int
    unread: int | None


class TopicProgress:
    """How far a topic is that some processors write: what comes has a later clock."""

    def __init__(self, inputs: Sequence[_TaskInput], answers: Answers) -> None:
        self._inputs = inputs
        self._answers = answers
        self.progress = combined([each.part for each in inputs])
        """The least of the tasks' that hold others back."""
        self.foreign = self.progress
        """The same without what may depend on records of the one who asks."""
        foreign = [each.part for each in inputs if not each.is_feedback]
        if len(foreign) < len(inputs):
            self.foreign = combined(foreign)

    @cached_property
    def newest_ms(self) -> int:
        """The largest timestamp that the writers have processed, -1 if unknown."""
        processors = {each.writer.processor for each in self._inputs}
        committed = [self._answers.committed.get(each, {}) for each in processors]
        return max((at.time_ms for found in committed for at in found.values()), default=UNKNOWN)

    @cached_property
    def holders(self) -> list[Holder]:
        """The tasks that hold the topic back, those that are least far first."""
        held = set(map(id, holding([each.part for each in self._inputs])))
        found: dict[TaskId, Holder] = {}
        for each in self._inputs:
            if id(each.part) not in held:
                continue
            task = TaskId(each.writer.processor, each.number)
            time_ms = each.part.progress.time_ms
            if task in found:
                time_ms = min(time_ms, found[task].time_ms)
            found[task] = Holder(task, time_ms, self._unread(each.writer, each.number))
        return sorted(found.values(), key=lambda each: each.time_ms)

    def _unread(self, writer: Writer, number: int) -> int | None:
        committed = self._answers.committed.get(writer.processor)
        if committed is None:
            return None
        counts = [
            _unread(committed.get(partition), partition, self._answers)
            for partition in _inputs(writer, number)
        ]
        return None if None in counts else sum(filter(None, counts))


class _TaskInput(NamedTuple):
    """How far a task that writes a topic is with one of its inputs, as seen behind it."""

    writer: Writer
    number: int
    part: PartProgress
    is_feedback: bool


class WriterProgress:
    """Finds out how far the writers of topics are. For one thread at a time.

    A task that writes is as far as the least of its inputs that still have something unread, or had
    until a short while ago: once nothing was unread of a source partition for `idle_after_ms`, it
    holds nobody back. Of a task with several inputs, or one that other tasks write, only the task
    can say whether they are idle: its own results hang on that. If it says nothing for ten times as
    long, although nothing is unread, it does not run.
    """

    def __init__(self, idle_after_ms: int) -> None:
        self._idle_after_ms = idle_after_ms
        self._read_since_ms: dict[tuple[str, Partition], int] = {}
        """Since when nothing is unread of an input, by processor and partition."""

    def of(
        self, topic: str, writers: Sequence[Writer], answers: Answers, now_ms: int
    ) -> TopicProgress:
        """Return how far a topic is that these processors write.

        `now_ms` comes from a clock that only goes forward.
        """
        mark = topic_mark(topic)
        inputs = [
            each
            for writer in writers
            for number in range(writer.tasks)
            for each in self._of_task(writer, number, mark, answers, now_ms)
        ]
        return TopicProgress(inputs, answers)

    def _of_task(
        self, writer: Writer, number: int, mark: str, answers: Answers, now_ms: int
    ) -> Iterator[_TaskInput]:
        committed = answers.committed.get(writer.processor, {})
        inputs = _inputs(writer, number)
        hold_ms = 0
        for partition in inputs:
            known = committed.get(partition)
            if known is not None and known.progress is not None:
                hold_ms = max(hold_ms, dict(known.progress.holds).get(mark, 0))
        for partition in inputs:
            progress = self._of_input(
                writer,
                partition,
                committed.get(partition),
                answers,
                now_ms,
                is_one=len(inputs) == 1,
            )
            topic, _ = partition
            has_all = topic in writer.internal
            part = PartProgress(progress.held_back(hold_ms), writer.origins(topic), has_all)
            yield _TaskInput(writer, number, part, topic in writer.feedback)

    def _of_input(
        self,
        writer: Writer,
        partition: Partition,
        committed: Committed | None,
        answers: Answers,
        now_ms: int,
        *,
        is_one: bool,
    ) -> Progress:
        is_internal = partition[0] in writer.internal
        known = _progress(committed, is_internal=is_internal)
        place = writer.processor, partition
        if writer.processor not in answers.committed or _unread(committed, partition, answers) != 0:
            self._read_since_ms.pop(place, None)
            return Progress(known.time_ms, False, known.sources_ms)
        since_ms = self._read_since_ms.setdefault(place, now_ms)
        if is_internal:
            return Progress(known.time_ms, known.is_idle, known.sources_ms)
        least_ms = self._idle_after_ms if is_one else _MOST_SILENT * self._idle_after_ms
        is_idle = now_ms - since_ms >= least_ms
        is_idle |= known.is_idle and not is_one
        return Progress(known.time_ms, is_idle, known.sources_ms)


def _inputs(writer: Writer, number: int) -> list[Partition]:
    return [(topic, number) for topic, count in writer.inputs.items() if number < count]


def _progress(committed: Committed | None, *, is_internal: bool) -> InputProgress:
    """Return how far a task was with an input; unknown if it has not said so."""
    if committed is None:
        return InputProgress(0)
    if committed.progress is not None:
        return committed.progress
    time_ms = -1 if is_internal else committed.time_ms
    return InputProgress(committed.offset, time_ms, time_ms)


def _unread(committed: Committed | None, partition: Partition, answers: Answers) -> int | None:
    """Return how many offsets of a partition are unread; `None` while that is unknown."""
    end = answers.ends.get(partition)
    position = answers.starts.get(partition)
    if committed is not None:
        position = committed.offset
        if committed.progress is not None:
            position = max(position, committed.progress.end)
    return None if end is None or position is None else max(end - position, 0)

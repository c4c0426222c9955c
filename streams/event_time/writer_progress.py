"""The progress of the writers of a topic, from their commits and their unread input."""

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
    """The brokers' answers: committed positions by processor, and offsets by partition.

    `ends` are the high watermarks of the writers' inputs, and `starts` the oldest offsets of inputs
    without a commit. Unknown partitions are left out.
    """

    committed: Mapping[str, Mapping[Partition, Committed]]
    starts: Mapping[Partition, int]
    ends: Mapping[Partition, int]


class Holder(NamedTuple):
    """A task that holds event time back, as part of its input is not processed yet.

    `unread` is the number of unread offsets, 0 if its input is held back itself, `None` while
    unknown.
    """

    task: TaskId
    time_ms: int
    unread: int | None


class TopicProgress:
    """The progress of a topic that some processors write: a bound for the clocks of new records."""

    def __init__(self, inputs: Sequence[_TaskInput], answers: Answers) -> None:
        self._inputs = inputs
        self._answers = answers
        self.progress = combined([each.part for each in inputs])
        """The least progress of the tasks that hold it back."""
        self.foreign = self.progress
        """The same without inputs that may depend on the reader's own records."""
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
        """The tasks that hold the topic back, least progress first."""
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
    """The progress of a writing task with one of its inputs, as seen downstream of the task."""

    writer: Writer
    number: int
    part: PartProgress
    is_feedback: bool


class _Look(NamedTuple):
    """The answers of one moment. `idle` has the topics of `upstream` that were looked at."""

    answers: Answers
    now_ms: int
    upstream: Mapping[str, Sequence[Writer]]
    idle: dict[str, bool]


class WriterProgress:
    """Finds the progress of the writers of topics. For one thread at a time.

    A writing task has the least progress of its active inputs. A source partition becomes idle once
    nothing is unread for `idle_after_ms`. If a task has several inputs, or one that other tasks
    write, only the task itself can tell which are idle, as its results depend on that. One that
    other tasks write is not idle either while anything upstream of it is not: the task may not have
    learned of that yet. A task that says nothing for ten times as long, with nothing unread, is not
    running.
    """

    def __init__(self, idle_after_ms: int) -> None:
        self._idle_after_ms = idle_after_ms
        self._read_since: dict[tuple[str, Partition], tuple[int, int]] = {}
        """Up to which offset an input is fully read, and since when, by processor and partition."""

    def of(
        self,
        topic: str,
        writers: Sequence[Writer],
        answers: Answers,
        now_ms: int,
        upstream: Mapping[str, Sequence[Writer]] = {},
    ) -> TopicProgress:
        """Return the progress of a topic that these processors write.

        `now_ms` comes from a clock that only goes forward. `upstream` has the writers of topics
        ahead of this one: the reader then knows of records that are under way before the tasks
        between do.
        """
        return self._of_topic(topic, writers, _Look(answers, now_ms, upstream, {}))

    def _of_topic(self, topic: str, writers: Sequence[Writer], look: _Look) -> TopicProgress:
        mark = topic_mark(topic)
        inputs = [
            each
            for writer in writers
            for number in range(writer.tasks)
            for each in self._of_task(writer, number, mark, look)
        ]
        return TopicProgress(inputs, look.answers)

    def _of_task(self, writer: Writer, number: int, mark: str, look: _Look) -> Iterator[_TaskInput]:
        committed = look.answers.committed.get(writer.processor, {})
        inputs = _inputs(writer, number)
        hold_ms = 0
        for partition in inputs:
            known = committed.get(partition)
            if known is not None and known.progress is not None:
                hold_ms = max(hold_ms, dict(known.progress.holds).get(mark, 0))
        for partition in inputs:
            known = committed.get(partition)
            progress = self._of_input(writer, partition, known, look, is_one=len(inputs) == 1)
            topic, _ = partition
            has_all = topic in writer.internal
            part = PartProgress(progress.held_back(hold_ms), writer.origins(topic), has_all)
            yield _TaskInput(writer, number, part, topic in writer.feedback)

    def _of_input(
        self,
        writer: Writer,
        partition: Partition,
        committed: Committed | None,
        look: _Look,
        *,
        is_one: bool,
    ) -> Progress:
        topic, _ = partition
        is_internal = topic in writer.internal
        known = _progress(committed, is_internal=is_internal)
        place, answers = (writer.processor, partition), look.answers
        if writer.processor not in answers.committed or _unread(committed, partition, answers) != 0:
            self._read_since.pop(place, None)
            return Progress(known.time_ms, False, known.sources_ms)
        if is_internal:
            is_idle = known.is_idle and self._is_idle(topic, look)
            return Progress(known.time_ms, is_idle, known.sources_ms)
        position = UNKNOWN if committed is None else committed.offset
        read_to, since_ms = self._read_since.get(place, (position, look.now_ms))
        if read_to != position:  # records came after the last look, and were processed
            since_ms = look.now_ms
        self._read_since[place] = position, since_ms
        least_ms = self._idle_after_ms if is_one else _MOST_SILENT * self._idle_after_ms
        is_idle = look.now_ms - since_ms >= least_ms
        is_idle |= known.is_idle and not is_one
        return Progress(known.time_ms, is_idle, known.sources_ms)

    def _is_idle(self, topic: str, look: _Look) -> bool:
        """Return whether nothing is under way to a topic, as far as its writers are known."""
        if topic not in look.idle:
            found = self._of_topic(topic, look.upstream.get(topic, ()), look)
            look.idle[topic] = found.progress.is_idle
        return look.idle[topic]


def _inputs(writer: Writer, number: int) -> list[Partition]:
    return [(topic, number) for topic, count in writer.inputs.items() if number < count]


def _progress(committed: Committed | None, *, is_internal: bool) -> InputProgress:
    """Return the committed progress of a task with an input; unknown if there is none."""
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

"""The consumers of a PipelineThread, and the distribution of their records to tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import ReadError
from kafka_pipeline.common.process.fault_points import reach
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.clients import Reader
from kafka_pipeline.taskmanager.past_records import wait_for_any
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext

Tasks = dict[TaskId, RunningTask]


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records of a partition that are new to a task."""

    task: TaskId
    running: RunningTask
    batch: RecordBatch


@dataclass(frozen=True, slots=True)
class End:
    """A partition had no records at `offset` or later; the task has all records before it."""

    task: TaskId
    running: RunningTask
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A partition that a task needs cannot be read any further."""

    task: TaskId
    running: RunningTask
    error: ReadError


@dataclass(frozen=True, slots=True)
class CannotRead:
    """A task gets no records: from a table, or because there can be no consumer for it now."""

    task: TaskId
    running: RunningTask
    error: EngineError


Fetched = FetchedRecords | End | Lost | CannotRead


@dataclass(slots=True)
class _Feed:
    """A partition as one consumer reads it, and the tasks that get its records."""

    partition: Partition
    read: int
    """The offset after the last record that was fetched."""
    next: int
    """The offset to read next: `read`, or the partition's end if no more records follow."""
    tasks: Tasks = field(default_factory=dict)
    is_confirmed: bool = False
    """Whether the brokers have answered, so that the offset is known to be valid."""
    is_at_its_end: bool = False

    @property
    def is_full_for_all(self) -> bool:
        """Whether no task can take more records."""
        return all(task.is_full(self.partition) for task in self.tasks.values())

    def can_join(self, other: _Feed, most_apart: int) -> bool:
        """Whether the tasks of both can share a consumer without waiting for each other."""
        if not (self.is_confirmed and other.is_confirmed):
            return False
        if self.read - other.next > most_apart or other.read - self.next > most_apart:
            return False
        tasks = [*self.tasks.values(), *other.tasks.values()]
        return not any(task.is_full(self.partition) for task in tasks)

    def overfull(self) -> list[TaskId]:
        """Return the tasks with far too many waiting records."""
        return [id_ for id_, task in self.tasks.items() if task.is_overfull(self.partition)]


class _SharedConsumer:
    """A consumer, and the partitions that it reads."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.feeds: dict[Partition, _Feed] = {}
        self.fed: set[Partition] = set()
        """The partitions with records in the last fetch; only these can be overfull."""

    @property
    def has_room(self) -> bool:
        return any(not feed.is_full_for_all for feed in self.feeds.values())

    def open(self, partition: Partition, offset: int) -> _Feed:
        """Start reading a partition at an offset."""
        feed = self.feeds[partition] = _Feed(partition, offset, offset)
        self.reader.assign({partition: offset})
        return feed

    def close(self, feed: _Feed) -> None:
        """Stop reading a partition."""
        self.reader.unassign([feed.partition])
        self.fed.discard(feed.partition)
        del self.feeds[feed.partition]

    def join(self, feed: _Feed, task_id: TaskId, task: RunningTask) -> None:
        """Start giving a task the records of a partition."""
        feed.tasks[task_id] = task
        task.readers[feed.partition] = self.reader

    def leave(self, feed: _Feed, task_id: TaskId) -> None:
        """Stop giving a task a partition's records; close the feed if no other task reads it."""
        del feed.tasks.pop(task_id).readers[feed.partition]
        if not feed.tasks:
            self.close(feed)

    def rewind(self, feed: _Feed, offset: int) -> _Feed:
        """Read a partition again from an earlier offset, for the same tasks."""
        self.close(feed)
        again = self.open(feed.partition, offset)
        again.tasks, again.is_confirmed = feed.tasks, True
        return again

    def held_up(self) -> list[tuple[_Feed, list[TaskId]]]:
        """Return the tasks that are overfull while others of their feed want more."""
        feeds = [self.feeds[partition] for partition in self.fed | self.reader.paused]
        return [
            (feed, overfull)
            for feed in feeds
            if (overfull := feed.overfull()) and not feed.is_full_for_all
        ]

    def adjust_pauses(self) -> None:
        """Pause and resume partitions, before more is fetched.

        A consumer without room is not asked for records. It pauses nothing, and keeps those ready
        that it has.
        """
        paused = self.reader.paused
        for partition in self.fed | paused:
            feed = self.feeds[partition]
            if partition not in paused:
                if feed.overfull():
                    self.reader.pause([partition])
            elif not feed.is_full_for_all:
                self.reader.resume([partition])


class SharedConsumers:
    """Fetches for all tasks of a PipelineThread; tasks that read the same records share a fetch.

    Tasks that read the same partition share a consumer as long as their positions are close. A task
    that is far behind the others, because it is slow or has only just started, gets another
    consumer until it has caught up. A task gets each offset once, in ascending order.
    """

    def __init__(self, context: TaskContext, dispose: Callable[[Reader], None]) -> None:
        """`dispose` closes a reader; that takes some ms, so another thread should do it."""
        self._context = context
        self._dispose = dispose
        self._group = context.config.topic_names.fetch_group
        self._most_records = context.config.max_batch_records
        self._consumers: list[_SharedConsumer] = []
        self._full: dict[tuple[TaskId, Partition], RunningTask] = {}
        """Tasks that get no more of a partition until they have processed their waiting records."""
        self._past: dict[tuple[TaskId, Partition], RunningTask] = {}
        """Tasks that get the records of a partition from a table, before those of the brokers."""
        self._at_end: list[tuple[_Feed, TaskId]] = []
        """Tasks that joined a feed that is at its end, which is not reported a second time."""
        self._without_consumer: list[CannotRead] = []

    @property
    def have_room(self) -> bool:
        """Whether any task can take more records."""
        return any(consumer.has_room for consumer in self._consumers) or any(
            not task.is_full(partition)
            for (_, partition), task in (*self._full.items(), *self._past.items())
        )

    def add(self, task_id: TaskId, task: RunningTask) -> None:
        """Start fetching for a task, from its position."""
        for partition in task.partitions:
            self._attach(task_id, task, partition)

    def remove(self, task_id: TaskId, task: RunningTask) -> None:
        """Stop fetching for a task; does nothing if it has no feeds."""
        self._without_consumer = [each for each in self._without_consumer if each.task != task_id]
        for partition in task.partitions:
            self._full.pop((task_id, partition), None)
            self._past.pop((task_id, partition), None)
            for consumer in list(self._consumers):
                feed = consumer.feeds.get(partition)
                if feed is not None and task_id in feed.tasks:
                    consumer.leave(feed, task_id)
                    self._dispose_if_idle(consumer)

    def fetch(self, wait_s: float) -> Iterator[Fetched]:
        """Yield records, ends and losses, in order for each partition; wait if there are none."""
        self._rearrange()
        for task_id, partition in [*self._past]:
            for fetched_past in self._take_past(task_id, partition):
                wait_s = 0
                yield fetched_past
        failed, self._without_consumer = self._without_consumer, []
        yield from failed
        at_end, self._at_end = self._at_end, []
        for ended, task_id in at_end:
            if ended.is_at_its_end and task_id in ended.tasks:
                yield from _end(ended, [task_id])
        to_fetch = [consumer for consumer in self._consumers if consumer.has_room]
        if not to_fetch:
            wait_for_any([task.past[place] for (_, place), task in self._past.items()], wait_s)
        for consumer in to_fetch:
            consumer.adjust_pauses()
            fetched = consumer.reader.fetch(self._most_records, wait_s / len(to_fetch))
            consumer.fed.clear()
            for batch in fetched.batches:
                if feed := consumer.feeds.get((batch.topic, batch.partition)):
                    yield from _records(consumer, feed, batch)
            for partition, offset in fetched.ends:
                if feed := consumer.feeds.get(partition):
                    feed.next = max(feed.next, offset)
                    feed.is_at_its_end = feed.is_confirmed = True
                    yield from _end(feed, list(feed.tasks))
            for error in fetched.errors:
                if feed := consumer.feeds.get(error.partition):
                    yield from self._error(consumer, feed, error)

    def close(self) -> None:
        """Close the consumers."""
        for consumer in self._consumers:
            consumer.reader.close()

    def _error(self, consumer: _SharedConsumer, feed: _Feed, error: ReadError) -> Iterator[Lost]:
        for task_id, task in list(feed.tasks.items()):
            if task.read[feed.partition] <= feed.next:
                yield Lost(task_id, task, error)
            else:
                # This task is ahead of the consumer, so the error may not concern it.
                consumer.leave(feed, task_id)
                self._attach(task_id, task, feed.partition)

    def _take_past(self, task_id: TaskId, partition: Partition) -> Iterator[Fetched]:
        """Yield records from a table, if they are read; after the last one, go on with Kafka."""
        task = self._past.get((task_id, partition))
        if task is None or task.is_full(partition):
            return
        past = task.past[partition]
        try:
            batch = past.take(self._most_records)
        except EngineError as error:
            del self._past[task_id, partition]
            yield CannotRead(task_id, task, error)
            return
        if batch is not None:
            yield FetchedRecords(task_id, task, batch)
        elif past.is_done:
            reach("after-history")
            del self._past[task_id, partition], task.past[partition]
            task.read[partition] = past.end
            self._attach(task_id, task, partition)

    def _rearrange(self) -> None:
        """Separate tasks that others would wait for, and bring together tasks that are close."""
        for consumer in self._consumers:
            for feed, slow in consumer.held_up():
                for task_id in slow:
                    self._full[task_id, feed.partition] = feed.tasks[task_id]
                    consumer.leave(feed, task_id)
        for (task_id, partition), task in list(self._full.items()):
            if not task.is_full(partition):
                del self._full[task_id, partition]
                self._attach(task_id, task, partition)
        for number in range(len(self._consumers) - 1, 0, -1):
            consumer = self._consumers[number]
            for feed in list(consumer.feeds.values()):
                self._merge(consumer, feed, self._consumers[:number])
            self._dispose_if_idle(consumer)

    def _dispose_if_idle(self, consumer: _SharedConsumer) -> None:
        """Drop a consumer that reads nothing.

        It is not kept for later: it could not read a topic that is deleted and created again
        meanwhile (`ManagedConsumer`).
        """
        if not consumer.feeds:
            self._consumers.remove(consumer)
            self._dispose(consumer.reader)

    def _merge(
        self, consumer: _SharedConsumer, feed: _Feed, earlier: Sequence[_SharedConsumer]
    ) -> None:
        """Let an earlier consumer take over a partition, unless their positions are far apart."""
        for other in earlier:
            taker = other.feeds.get(feed.partition)
            if not feed.can_join(taker or feed, self._most_records):
                continue
            consumer.close(feed)
            if taker is None:
                taker = other.open(feed.partition, feed.next)
                taker.read, taker.is_confirmed = feed.read, True
            elif feed.next < taker.read:
                taker = other.rewind(taker, feed.read)
            for task_id, task in feed.tasks.items():
                self._join(other, taker, task_id, task)
            return

    def _attach(self, task_id: TaskId, task: RunningTask, partition: Partition) -> None:
        """Read a partition for a task with a consumer at its position, or with another one."""
        if partition in task.past:
            self._past[task_id, partition] = task
            return
        offset = task.read[partition]
        for consumer in self._consumers:
            feed = consumer.feeds.get(partition)
            if feed is not None and feed.read <= offset <= feed.next:
                self._join(consumer, feed, task_id, task)
                return
        try:
            consumer = self._consumer_without(partition)
        except TransactionFailedError as error:
            # There may be no token now. The task starts again, once there can be one.
            self._without_consumer.append(CannotRead(task_id, task, error))
            return
        self._join(consumer, consumer.open(partition, offset), task_id, task)

    def _join(
        self, consumer: _SharedConsumer, feed: _Feed, task_id: TaskId, task: RunningTask
    ) -> None:
        consumer.join(feed, task_id, task)
        if feed.is_at_its_end:
            # The caller of `fetch` must see this end: records of another input may be waiting for
            # it.
            self._at_end.append((feed, task_id))

    def _consumer_without(self, partition: Partition) -> _SharedConsumer:
        for consumer in self._consumers:
            if partition not in consumer.feeds:
                return consumer
        clients = self._context.clients
        self._consumers.append(_SharedConsumer(clients.reader(self._group, is_watched=True)))
        return self._consumers[-1]


def _records(
    consumer: _SharedConsumer, feed: _Feed, batch: RecordBatch
) -> Iterator[FetchedRecords]:
    """Yield a batch for each task, without the records that it already has."""
    feed.read = feed.next = batch.offsets[-1] + 1
    feed.is_confirmed, feed.is_at_its_end = True, False
    consumer.fed.add(feed.partition)
    for task_id, task in list(feed.tasks.items()):
        part = batch.part(batch.count_before(task.read[feed.partition]), len(batch))
        if len(part):
            yield FetchedRecords(task_id, task, part)


def _end(feed: _Feed, tasks: Iterable[TaskId]) -> Iterator[End]:
    """Yield the end of a partition for each task that has all records."""
    for task_id in tasks:
        task = feed.tasks[task_id]
        if task.read[feed.partition] <= feed.next:
            yield End(task_id, task, feed.partition, feed.next)

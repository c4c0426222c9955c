"""Fakes of what a PipelineThread uses: no Kafka, Spark or clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import Fetched, ReadError
from kafka_pipeline.common.kafka.offsets import FirstRecord
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.pipelines.specs import ForwardSpec, ProcessorSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import ExistingTopic, TopicLimits
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.streams.engine.runtime import UserCall
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager import channel_messages, pipeline_thread
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.pipeline_thread import PipelineThread
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskMemory, Turn
from kafka_pipeline.taskmanager.start_gate import StartGate
from kafka_pipeline.taskmanager.task_start import TaskStart
from kafka_pipeline.taskmanager.task_stores import TaskStores
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from kafka_pipeline.taskmanager.user_errors import UserErrorLog
from tests.small_config import small_config

TIMEOUT_S = 20
HAS_MORE = object()
"""What `FakeTask.on_turn` returns if records are left."""
CONFIG = small_config(server_port=1)


def replica(partition: int, spec: ProcessorSpec | None = None) -> ProcessorReplica:
    """Return a replica of the processor P; of the type `forward` by default."""
    spec = spec or ForwardSpec()
    return ProcessorReplica(TaskId("P", partition), spec, ("source",), ("sink",), ("in",), ("out",))


def batch(partition: int, offset: int = 0) -> RecordBatch:
    return RecordBatch("in", partition, [b"k"], [b"v"], [1], [offset])


class Clock:
    """Time that passes only when a test advances it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class FakeReader:
    """Hands out the batches that a test puts in."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.has_ends = True
        """Whether the end of a partition is reached with the last record that came."""
        self.assigned: set[Partition] = set()
        self.paused: set[Partition] = set()
        self.known = -1001
        """The known end of each partition."""
        self.epoch = -1
        """The leader epoch of the records."""

    @property
    def is_idle(self) -> bool:
        return not self.assigned

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.assigned |= positions.keys()

    def unassign(self, partitions: Sequence[Partition]) -> None:
        self.assigned -= set(partitions)
        self.paused -= set(partitions)

    def pause(self, partitions: Iterable[Partition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[Partition]) -> None:
        self.paused -= set(partitions)

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        taken, self.batches = self.batches, []
        ends = [((b.topic, b.partition), b.offsets[-1] + 1) for b in taken]
        return Fetched(taken, ends if self.has_ends else [])

    def known_end(self, partition: Partition) -> int:
        return self.known

    def leader_epoch(self, partition: Partition) -> int:
        return self.epoch

    def close(self) -> None:
        pass


class FakeClients:
    """Clients of a cluster that a test makes: readers by `reader`, answers by `brokers`."""

    def __init__(self, brokers: object, make_reader: Callable[[], object]) -> None:
        self.brokers: Any = brokers
        self._make_reader: Callable[[], Any] = make_reader

    def new_brokers(self) -> Any:
        return self.brokers

    def reader(self, group: str, *, is_watched: bool = False) -> Any:
        return self._make_reader()

    def producer(
        self,
        transactional_id: str,
        size_limits: Mapping[str, int],
        arcs: Mapping[str, int] = {},
    ) -> TaskProducer:
        return TaskProducer(CONFIG, transactional_id, size_limits)


class FakeChannel:
    """A driver that never falls silent."""

    def __init__(self, clock: Clock) -> None:
        self.commands: list[channel_messages.Command] = []
        self.sent: list[channel_messages.ToDriver] = []
        self.is_lost = False
        self.on_ask: Callable[[channel_messages.Ask], None] = lambda _: None
        self.on_ping: Callable[[bool], None] = lambda _: None
        self._clock = clock

    @property
    def last_heard_s(self) -> float:
        return self._clock.now_s

    def receive(self, wait_s: float = 0) -> channel_messages.Command | None:
        return self.commands.pop(0) if self.commands else None

    def send(self, message: channel_messages.ToDriver) -> None:
        self.sent.append(message)

    def count(self, kind: type[channel_messages.ToDriver]) -> int:
        """Return how many messages of a kind were sent."""
        return sum(isinstance(message, kind) for message in self.sent)


class FakeBrokers:
    """Knows the ends of partitions, committed offsets and first records that a test gives it."""

    def __init__(self) -> None:
        self.ends: dict[Partition, int] = {}
        self.groups: dict[str, dict[Partition, int]] = {}
        self.firsts: dict[Partition, FirstRecord] = {}
        self.asked: list[tuple[str, object]] = []
        """What was asked, and for what."""

    def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        self.asked.append(("ends", set(partitions)))
        return {p: end for p, end in self.ends.items() if p in partitions}

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        self.asked.append((group, set(partitions)))
        return {p: o for p, o in self.groups.get(group, {}).items() if p in partitions}

    def first_records(self, positions: Mapping[Partition, int]) -> dict[Partition, FirstRecord]:
        self.asked.append(("first records", dict(positions)))
        return {p: first for p, first in self.firsts.items() if p in positions}


class FakeAdmin:
    """Answers what a task asks an `Admin` at its start; partitions begin and end at offset 5.

    Each topic has 6 partitions.
    """

    def existing_topics(self, names: Collection[str]) -> dict[str, ExistingTopic]:
        return dict.fromkeys(names, ExistingTopic("id", 6))

    def topic_ids(self, names: Collection[str]) -> Mapping[str, str]:
        return dict.fromkeys(names, "id")

    def topic_limits(self, names: Collection[str]) -> Mapping[str, TopicLimits]:
        return dict.fromkeys(names, TopicLimits(1_000_000))

    def oldest_offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 5)

    stable_ends = oldest_offsets


class NobodyKnows:
    """Brokers for a `TimeWatch` that is never started, and so never asks them."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asks for {name}")


def quiet_watch() -> LagWatch:
    """Return a LagWatch that knows nothing of brokers."""
    return LagWatch(CONFIG, FakeBrokers())


class FakeTask(RunningTask):
    """A running task whose start, turns, commits and end are the test's.

    What a test gives it to do may raise, and may wait.
    """

    state = TaskState.RUNNING

    def __init__(self, task_id: TaskId) -> None:
        super().__init__({("in", task_id.partition): 0}, TaskStores((), {}, StoreResources()))
        self.task_id = task_id
        self.on_start: Callable[[], object] = lambda: None
        self.on_turn: Callable[[], object] = lambda: None
        self.on_commit: Callable[[], object] = lambda: None
        self.on_close: Callable[[], object] = lambda: None
        self.records: list[RecordBatch] = []
        self.uncommitted = 0
        self.committed = 0
        self.turns = 0
        self.fills_up = False
        self.loses_connection = False
        self.waits_for_others = False
        self.calls: list[UserCall] = []
        """The call of user code that goes on, if there is any."""
        self.is_released = False
        self.releases = 0
        """How often it was released: a start that follows at once makes it unreleased again."""
        self.is_ended = False
        """Whether it was closed whole after it was abandoned."""

    def add(self, batch: RecordBatch) -> None:
        self.records.append(batch)

    def loss_of_input(self, error: ReadError) -> NonRetriableError:
        return NonRetriableError(str(error))

    @property
    def has_records(self) -> bool:
        return bool(self.records)

    @property
    def has_own_thread(self) -> bool:
        return self.waits_for_others

    @property
    def call(self) -> UserCall | None:
        return self.calls[-1] if self.calls else None

    def is_full(self, partition: Partition) -> bool:
        return self.fills_up

    is_overfull = is_full

    @property
    def has_lost_connection(self) -> bool:
        return self.loses_connection

    def require_connection(self) -> None:
        raise TransactionFailedError("a connection broke")

    def turn(self, until_s: float) -> Turn:
        self.turns += 1
        taken, self.records = self.records, []
        has_more = self.on_turn()
        self.uncommitted += len(taken)
        return Turn(has_more=has_more is HAS_MORE, wants_commit=False)

    @property
    def has_uncommitted(self) -> bool:
        return self.uncommitted > 0

    def commit(self) -> None:
        self.on_commit()
        self.committed += self.uncommitted
        self.uncommitted = 0

    def close(self) -> None:
        self.on_close()
        self.release()

    def release(self) -> None:
        self.is_released = True
        self.releases += 1

    def end_abandoned(self, _result: object = None) -> None:
        self.is_ended = True


class FakeStart(TaskStart):
    """A start that gives the test's task."""

    def __init__(self, task: FakeTask) -> None:
        super().__init__(replica(0), cast(Any, None), TaskMemory(), None, EventLoop(), lambda: None)
        self._task = task

    def run(self) -> RunningTask:
        self._task.on_start()
        self._require_wanted()
        self._task.is_released = False
        self._task.uncommitted = 0
        return self._task


class Rig:
    """A PipelineThread with fake tasks, stepped by hand; its other threads are real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, config: Config = CONFIG) -> None:
        self.clock = Clock()
        self.tasks: dict[TaskId, FakeTask] = {}
        self.reader = FakeReader()
        self.channel = FakeChannel(self.clock)
        monkeypatch.setattr(pipeline_thread, "time", self.clock)
        monkeypatch.setattr(
            AssignedTask, "new_start", lambda assigned, wake: self._new_start(assigned)
        )
        self.failed_stores: dict[object, Exception] = {}
        """What global stores say at their next update: which tasks cannot go on, and why."""
        self.updates = 0
        stores = SimpleNamespace(update=self._update, are_used=False)
        self.stores = stores
        self.brokers = FakeBrokers()
        self.lag_watch = LagWatch(CONFIG, self.brokers)
        context: Any = SimpleNamespace(
            config=config,
            lag_watch=self.lag_watch,
            time_watch=TimeWatch(CONFIG, NobodyKnows()),
            tm_id=0,
            thread=0,
            clients=FakeClients(None, lambda: self.reader),
            global_stores=stores,
            new_event_loop=EventLoop,
            user_errors=UserErrorLog(self.clock.monotonic),
            gate=StartGate(),
        )
        self.thread = PipelineThread(context, self.channel)  # type: ignore[arg-type]

    def _new_start(self, assigned: AssignedTask) -> TaskStart:
        assigned.start = FakeStart(self.tasks[assigned.replica.task])
        return assigned.start

    def _update(self, _max_records: int) -> dict[object, Exception]:
        self.updates += 1
        return self.failed_stores

    def assign(self, partition: int, spec: ProcessorSpec | None = None) -> FakeTask:
        """Let the driver assign a task; return it."""
        given = replica(partition, spec)
        task = self.tasks[given.task] = FakeTask(given.task)
        self.channel.commands.append(channel_messages.Assign(given, epoch=0))
        return task

    def revoke(self, *tasks: FakeTask) -> None:
        """Let the driver revoke tasks, all at once."""
        self.channel.commands += [channel_messages.Revoke(t.task_id) for t in tasks]

    def status(self, task: FakeTask) -> TaskStatus:
        return self.thread.status(task.task_id)

    def step(self) -> None:
        """Do one round of the loop."""
        self.thread.step()

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Turn until what goes on in the background has come so far; its time limit is pytest's."""
        while not condition():
            self.step()

    def run(self, *partitions: int, spec: ProcessorSpec | None = None) -> list[FakeTask]:
        """Assign tasks and turn until they run and are read."""
        tasks = [self.assign(partition, spec) for partition in partitions]
        self.step_until(lambda: {p for t in tasks for p in t.partitions} <= self.reader.assigned)
        return tasks

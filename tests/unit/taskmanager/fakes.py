"""What a PipelineThread works with, without Kafka, Spark or clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from common.config import Config
from common.kafka.clients import Partition
from common.kafka.data import Fetched
from common.kafka.task_producer import TaskProducer
from common.messages import ProcessorReplica
from common.nodes import ProcessorType, TaskId
from common.record_batch import RecordBatch
from common.status import TaskState, TaskStatus
from taskmanager import pipeline_thread
from taskmanager.pipeline_thread import PipelineThread

TIMEOUT_S = 20
CONFIG = Config(
    server_ip="127.0.0.1",
    server_port=1,
    tm_number=1,
    parallelism=1,
    replication_factor=1,
    source_topic="in",
    sink_topic="out",
)


def replica(partition: int) -> ProcessorReplica:
    return ProcessorReplica(
        TaskId("P", partition), ProcessorType.FORWARD, ("source",), ("sink",), ("in",), ("out",)
    )


def batch(partition: int) -> RecordBatch:
    return RecordBatch("in", partition, [b"k"], [b"v"], [1], [0])


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class FakeReader:
    """Hands out the batches that a test puts in."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.assigned: set[Partition] = set()
        self.paused: set[Partition] = set()
        """As librdkafka has it: unassigning and assigning does not resume."""

    @property
    def is_idle(self) -> bool:
        return not self.assigned

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.assigned |= positions.keys()

    def unassign(self, partitions: Sequence[Partition]) -> None:
        self.assigned -= set(partitions)

    def pause(self, partitions: Iterable[Partition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[Partition]) -> None:
        self.paused -= set(partitions)

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        taken, self.batches = self.batches, []
        return Fetched(taken)


class FakeClients:
    """Clients of a cluster that a test makes: readers by `reader`, answers by `brokers`."""

    def __init__(self, brokers: object, make_reader: Callable[[], object]) -> None:
        self.brokers: Any = brokers
        self._make_reader: Callable[[], Any] = make_reader

    def reader(self, group: str, *, is_watched: bool = False) -> Any:
        return self._make_reader()

    def producer(self, transactional_id: str, size_limits: Mapping[str, int]) -> TaskProducer:
        return TaskProducer(CONFIG, transactional_id, size_limits)


class FakeChannel:
    """A driver that never falls silent."""

    def __init__(self, clock: Clock) -> None:
        self.commands: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.is_lost = False
        self._clock = clock

    @property
    def last_heard_s(self) -> float:
        return self._clock.now_s

    def receive(self, wait_s: float = 0) -> dict[str, Any] | None:
        return self.commands.pop(0) if self.commands else None

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def count(self, kind: str) -> int:
        """Return how many messages of a kind were sent."""
        return sum(message["type"] == kind for message in self.sent)


class FakeTask:
    """A task whose `on_start`, `on_process` and `on_commit` are the test's."""

    def __init__(self, replica: ProcessorReplica) -> None:
        self.replica = replica
        self.partitions = (("in", replica.task.partition),)
        self.positions = dict.fromkeys(self.partitions, 0)
        self.state = TaskState.STARTING
        self.reason = ""
        self.restarts = 0
        self.is_cancelled = False
        self.is_caught_up = False
        self.needs_refresh = False
        self.needs_turns = False
        self.has_lost_connection = False
        self.on_lost_connection: Callable[[], object] = lambda: None
        self.has_gathered = False
        self.wants_commit = False
        self.has_open_transaction = False
        self.has_committed = False
        self.transaction_age_s = 0.0
        self.log = structlog.get_logger()
        self.on_start: Callable[[], object] = lambda: None
        self.on_process: Callable[[], object] = lambda: None
        self.on_commit: Callable[[], object] = lambda: None
        self.on_turn: Callable[[], object] = lambda: None
        self.fills_up = False

    @property
    def is_running(self) -> bool:
        return self.state is TaskState.RUNNING

    def start(self) -> None:
        self.on_start()
        self.has_committed = False
        self.state = TaskState.RUNNING

    def require_connection(self) -> None:
        self.on_lost_connection()

    def process(self, batch: RecordBatch) -> None:
        self.has_open_transaction = True
        self.on_process()

    def is_full(self, partition: Partition) -> bool:
        return self.fills_up

    def turn(self) -> None:
        self.on_turn()

    def commit(self) -> bool:
        self.on_commit()
        self.has_open_transaction, self.has_committed = False, True
        return True

    def drop(self) -> None:
        self.has_open_transaction = False

    def fail(self, reason: str) -> None:
        self.state, self.reason = TaskState.FAILED, reason

    def cancel(self) -> None:
        self.is_cancelled = True

    def status(self) -> TaskStatus:
        return TaskStatus(self.replica.task, self.state, restarts=self.restarts)


class Rig:
    """A PipelineThread with fake tasks, stepped by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.tasks: dict[int, FakeTask] = {}
        self.reader = FakeReader()
        self.channel = FakeChannel(self.clock)
        monkeypatch.setattr(pipeline_thread, "time", self.clock)
        monkeypatch.setattr(pipeline_thread, "Task", self._task)
        self.failed_stores: dict[object, Exception] = {}
        """What global stores say at their next update: which tasks cannot go on, and why."""
        self.updates = 0
        stores = SimpleNamespace(update=self._update)
        context: Any = SimpleNamespace(config=CONFIG, reader=self.reader, global_stores=stores)
        self.thread = PipelineThread(context, self.channel)  # type: ignore[arg-type]

    def _task(self, replica: ProcessorReplica, _context: object, _epoch: int) -> FakeTask:
        return self.tasks[replica.task.partition]

    def _update(self, _max_records: int) -> dict[object, Exception]:
        self.updates += 1
        return self.failed_stores

    def assign(self, partition: int) -> FakeTask:
        """Let the driver assign a task; return it."""
        task = self.tasks[partition] = FakeTask(replica(partition))
        self.channel.commands.append(
            {
                "type": "assign",
                "replica": task.replica.to_json(),
                "parameters": task.replica.parameters(),
                "epoch": 0,
            }
        )
        return task

    def revoke(self, *partitions: int) -> None:
        """Let the driver revoke tasks, all at once."""
        self.channel.commands += [
            {"type": "revoke", "task": str(TaskId("P", partition))} for partition in partitions
        ]

    def step(self) -> None:
        """Do one turn of the loop."""
        self.thread._obey()
        self.thread._watch_starts()
        self.thread._work()
        self.thread._report()

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Turn until what goes on in the background has come so far; its time limit is pytest's."""
        while not condition():
            self.step()

    def run(self, *partitions: int) -> list[FakeTask]:
        """Assign tasks and turn until they run and are read."""
        tasks = [self.assign(partition) for partition in partitions]
        self.step_until(lambda: {p for t in tasks for p in t.partitions} <= self.reader.assigned)
        return tasks

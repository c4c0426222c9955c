"""Runs the real `Task`, or the real PipelineThread, on the brokers in memory, step by step.

All that knows how they are started, fed and committed is in here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from common.config import Config
from common.kafka.clients import FencedError, HopelessError, TransactionFailedError
from common.messages import ProcessorReplica
from common.status import TaskState
from common.topics import TopicNames
from streams.stores import builder as store_builder
from streams.stores.rocksdb import StoreLockedError
from taskmanager import assigned_task, global_stores, pipeline_thread, restore
from taskmanager import task as task_module
from taskmanager.assigned_task import AssignedTask, TaskContext
from taskmanager.global_stores import GlobalStores
from taskmanager.pipeline_thread import PipelineThread, fetcher
from taskmanager.task import Task
from taskmanager.task_stores import TaskStores
from tests.memory.broker import CLUSTER_ID, Broker
from tests.memory.clients import MemoryClients
from tests.memory.clock import Clock
from tests.memory.disk import Disk
from tests.memory.faults import Faults
from tests.memory.link import WorkerCrashedError

_TIMED = (pipeline_thread, task_module, assigned_task, restore, global_stores)
_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all owners of the same tasks have in common."""

    config: Config
    replicas: Sequence[ProcessorReplica]
    broker: Broker
    faults: Faults


@contextmanager
def simulated(broker: Broker, disk: Disk | None) -> Iterator[None]:
    """Give the engine the brokers' clock, and a disk in memory if there is one.

    Its log goes into the story.
    """

    def note(_logger: object, level: str, entry: Any) -> Any:
        broker.tell(f"[{level}] {entry}")
        raise structlog.DropEvent

    replaced: list[tuple[Any, str, object]] = []

    def put(module: Any, name: str, value: object) -> None:
        replaced.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    clock: Clock = broker.clock
    for module in _TIMED:
        put(module, "time", clock)
        if hasattr(module, "wall_clock_ms"):
            put(module, "wall_clock_ms", clock.wall_clock_ms)
    if disk is not None:
        put(store_builder, "RocksDBStore", disk.open)
    structlog.configure(processors=[note])
    try:
        yield
    finally:
        structlog.reset_defaults()
        for module, name, value in replaced:
            setattr(module, name, value)


class Owner(ABC):
    """A worker with tasks of one processor, until it ends, crashes or loses them to others."""

    def __init__(self, name: str, tm_id: int, world: Surroundings) -> None:
        self.tm_id = tm_id
        config, broker = world.config, world.broker
        self.clients = MemoryClients(broker, config.transaction_timeout_ms / 1000, world.faults)
        self.is_acting = False
        """Whether it is in a call in which others act."""
        self.is_gone = False
        self._config = config
        self._clock = broker.clock
        self._tell: Callable[[str], None] = lambda what: broker.tell(f"{name} {what}")
        self._reader = fetcher(config, self.clients)
        stores = GlobalStores(config, tm_id, 0, self.clients)
        self._context = TaskContext(
            config, tm_id, 0, CLUSTER_ID, self.clients, self._reader, stores
        )
        self._tell("begins")

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether there is something that it has not committed."""

    @abstractmethod
    def claim(self) -> None:
        """Get all tasks that it does not have, as a JobManager gives them."""

    def step(self) -> None:
        """Do one turn."""
        self._act(self._step)

    def leave(self) -> None:
        """Commit what is open, and close the tasks."""
        self._act(self._leave)

    def crash(self) -> None:
        """End the process; one in the middle of a call ends when it comes back."""
        if not self.is_gone:
            self._tell("crashes")
            self.clients.link.cut()
            if not self.is_acting:
                self._end()

    def _act(self, action: Callable[[], None]) -> None:
        if self.is_acting or self.is_gone:
            return
        self.is_acting = True
        try:
            action()
        except WorkerCrashedError:
            self._end()
        finally:
            self.is_acting = False

    def _end(self) -> None:
        """Do what becomes of a process that ends: nothing has its files open."""
        self.is_gone = True
        for task in self._tasks():
            stores: TaskStores | None = getattr(task, "_stores", None)
            if stores is not None:
                stores.close()

    def _give_up(self, task: AssignedTask, reason: str) -> None:
        """End after an error for which there is no hope: only who was fenced may have one."""
        self._tell(f"fails: {reason}")
        transactional_id = TopicNames.of(self._config).transactional_id(task.replica.task)
        is_fenced = self.clients.is_fenced(transactional_id)
        assert is_fenced, f"a task fails that nobody has taken over: {reason}"
        self._end()

    @abstractmethod
    def _tasks(self) -> Sequence[AssignedTask]: ...
    @abstractmethod
    def _step(self) -> None: ...
    @abstractmethod
    def _leave(self) -> None: ...


class TaskOwner(Owner):
    """Runs one task, as the loop of a PipelineThread would."""

    def __init__(self, name: str, tm_id: int, world: Surroundings) -> None:
        super().__init__(name, tm_id, world)
        (replica,) = world.replicas
        self._task = Task(replica, self._context, epoch=0)
        self._is_running = False

    @property
    def is_busy(self) -> bool:
        """See `Owner.is_busy`."""
        return self._task.has_open_transaction or self._task.has_gathered

    def claim(self) -> None:
        """See `Owner.claim`: it ends without its only one."""

    def _tasks(self) -> Sequence[AssignedTask]:
        return [self._task]

    def _step(self) -> None:
        if self._is_running:
            self._turn()
        else:
            self._start()

    def _start(self) -> None:
        self._tell("starts the task")
        if self._attempt(self._task.start):
            self._reader.assign(self._task.positions)
            self._is_running = True

    def _turn(self) -> None:
        task = self._task
        fetched = self._reader.fetch(self._config.max_batch_records, self._wait_s())
        for batch in fetched.batches:
            if self._is_running:
                self._attempt(partial(task.process, batch))
        for partition, offset in fetched.ends:
            if self._is_running:
                task.reached_end(partition, offset)
        for _, reason in fetched.errors:
            if self._is_running:
                self._attempt(partial(task.lose_input, reason))
        if self._is_running and task.needs_turns:
            self._attempt(task.turn)
        if self._is_running:
            self._pause_full()
            self._commit_if_due(nothing_came=not fetched.batches)

    def _wait_s(self) -> float:
        return 0 if self._task.has_open_transaction or self._task.has_gathered else _WAIT_S

    def _pause_full(self) -> None:
        full = {p for p in self._task.partitions if self._task.is_full(p)}
        paused = self._reader.paused
        if full != paused:
            self._reader.pause(full - paused)
            self._reader.resume(paused - full)

    def _commit_if_due(self, nothing_came: bool) -> None:
        task = self._task
        is_due = (
            nothing_came
            or task.is_caught_up
            or task.wants_commit
            or task.transaction_age_s >= self._config.commit_interval_ms / 1000
        )
        if task.has_open_transaction and is_due:
            self._attempt(partial(self._finish, task.commit))
        elif task.has_lost_connection:
            self._attempt(task.require_connection)
        elif task.needs_refresh:
            self._attempt(partial(self._finish, task.refresh))

    def _finish(self, commit: Callable[[], bool]) -> None:
        if not commit():
            raise TransactionFailedError("a connection broke during the commit")

    def _attempt(self, action: Callable[[], object]) -> bool:
        """Do something; an error that may pass drops the task, which the next step starts.

        Only who was fenced may find that there is no hope.
        """
        try:
            action()
        except HopelessError as error:
            self._give_up(self._task, str(error))
            self._is_running = False
            return False
        except (FencedError, TransactionFailedError, StoreLockedError) as error:
            self._tell(f"drops the task: {type(error).__name__}: {error}")
            self._drop()
            return False
        return True

    def _drop(self) -> None:
        if self._is_running:
            self._reader.resume(self._reader.paused)
            self._reader.unassign(self._task.partitions)
        self._is_running = False
        self._task.drop()
        self._task.state = TaskState.STARTING

    def _leave(self) -> None:
        if self._is_running and self._task.has_open_transaction:
            self._attempt(self._task.commit)
        self._drop()
        self._end()
        self._tell("has left")


class ThreadOwner(Owner):
    """Runs a PipelineThread with a channel to nobody; what it does side by side comes in turn."""

    def __init__(self, name: str, tm_id: int, world: Surroundings) -> None:
        super().__init__(name, tm_id, world)
        self._channel = _Channel(self._clock)
        self._thread = PipelineThread(self._context, self._channel)  # type: ignore[arg-type]
        pool: Any = _InTurn()
        self._thread._starters = self._thread._standby_starters = pool
        self._thread._committers = pool
        self._replicas = world.replicas
        self.claim()

    @property
    def is_busy(self) -> bool:
        """See `Owner.is_busy`."""
        return any(task.has_open_transaction or task.has_gathered for task in self._tasks())

    def claim(self) -> None:
        """See `Owner.claim`."""
        self._channel.silent_since_s = None
        for replica in self._replicas:
            if replica.task not in self._thread._tasks:
                self._channel.commands.append(
                    {
                        "type": "assign",
                        "replica": replica.to_json(),
                        "parameters": replica.parameters(),
                        "epoch": 0,
                    }
                )

    def silence_driver(self) -> None:
        """Let the thread hear nothing any more: its lease runs out."""
        self._tell("hears nothing of its driver any more")
        self._channel.silent_since_s = self._clock.now_s

    def _tasks(self) -> Sequence[AssignedTask]:
        return list(self._thread._tasks.values())

    def _step(self) -> None:
        thread = self._thread
        thread._obey()
        thread._watch_lease()
        thread._watch_starts()
        thread._work()
        thread._report()
        for task in self._tasks():
            if task.state is TaskState.FAILED:
                self._give_up(task, task.reason)
        if not self._tasks():
            self._tell("has no tasks any more")
            self._end()

    def _leave(self) -> None:
        for task in self._tasks():
            command = {"type": "revoke", "task": str(task.replica.task)}
            self._channel.commands.append(command)
        self._step()


class _Channel:
    """A driver's channel whose other end says nothing but what a test has it say."""

    def __init__(self, clock: Clock) -> None:
        self.commands: list[dict[str, Any]] = []
        self.is_lost = False
        self.silent_since_s: float | None = None
        self._clock = clock

    @property
    def last_heard_s(self) -> float:
        since_s = self.silent_since_s
        return self._clock.now_s if since_s is None else since_s

    def receive(self, wait_s: float = 0) -> dict[str, Any] | None:
        if self.commands:
            return self.commands.pop(0)
        self._clock.advance(wait_s)
        return None

    def send(self, message: dict[str, Any]) -> None:
        pass


class _InTurn:
    """Does at once what a pool of threads would do side by side."""

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call())
        except Exception as error:
            done.set_exception(error)
        return done

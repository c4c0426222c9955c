"""Runs the real `Task`, or the real PipelineThread, on the brokers in memory, step by step.

Only this module knows how they are started, fed and committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka import read_to_end
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.data import ReadError
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine import async_calls, group_task, runtime
from kafka_pipeline.streams.stores import builder as store_builder
from kafka_pipeline.streams.stores.bytes_store import BytesStore
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.streams.stores.rocksdb_directory import StoreLockedError
from kafka_pipeline.taskmanager import (
    assigned_task,
    channel_messages,
    global_stores,
    offset_doubt,
    pipeline_thread,
    restore,
    standby_task,
    task_start,
    user_errors,
)
from kafka_pipeline.taskmanager import task as task_module
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.global_stores import GlobalStores
from kafka_pipeline.taskmanager.lag_watch import LagWatch
from kafka_pipeline.taskmanager.pipeline_thread import PipelineThread
from kafka_pipeline.taskmanager.remote_queries import RemoteQueries
from kafka_pipeline.taskmanager.running_task import RunningTask, TaskContext, TaskMemory
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.memory.broker import CLUSTER_ID, Broker
from tests.memory.channel import QuietChannel
from tests.memory.clients import MemoryClients, MemoryPositions
from tests.memory.clock import Clock
from tests.memory.disk import Disk
from tests.memory.faults import Faults
from tests.memory.in_turn import BackgroundInTurn, EventLoopsInTurn
from tests.memory.link import WorkerCrashedError
from tests.memory.pipelines import MAX_PROCESS_TIME_MS
from tests.user_code import folding

_TIMED = (
    pipeline_thread,
    task_module,
    task_start,
    standby_task,
    assigned_task,
    read_to_end,
    restore,
    offset_doubt,
    global_stores,
    user_errors,
    group_task,
    async_calls,
)
_WAIT_S = 0.05
_TURN_S = 0.1
_STEP_S = 0.0001
"""The least time that a step takes, so that a sleeping caller wakes up sooner or later."""
_EARLY_COMMIT = 0.05
_STUCK_S = MAX_PROCESS_TIME_MS / 1000 + 1
_GLANCE_S = 0.25
"""The time in a stuck call after which others act again."""
_MOST_ACTS = 5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment that all owners of the same tasks share."""

    config: Config
    replicas: Sequence[ProcessorReplica]
    broker: Broker
    faults: Faults
    acting: list[Owner] = field(default_factory=list)
    """The owners that are in a call, each nested in the call of the one before."""
    queries: RemoteQueries | None = None
    """What runs the queries of tasks, if they have any."""


@contextmanager
def simulated(world: Surroundings, disk: Disk | None) -> Iterator[None]:
    """Give the engine the brokers' clock, and the disk in memory if there is one.

    The engine's log goes into the story, and the weather decides how long user code waits.
    """
    broker, faults, acting = world.broker, world.faults, world.acting

    def note(_logger: object, level: str, entry: Any) -> Any:
        broker.tell(f"[{level}] {entry}")
        raise structlog.DropEvent

    clock: Clock = broker.clock
    open_store: Any = RocksDBStore if disk is None else disk.open

    def open_for_owner(*args: Any) -> Any:
        store = open_store(*args)
        acting[-1].stores.append(store)
        return store

    structlog.configure(processors=[note])
    try:
        with pytest.MonkeyPatch.context() as patch:
            for module in _TIMED:
                patch.setattr(module, "time", clock, raising=False)
                for name in ("wall_clock_ms", "monotonic_ms"):
                    patch.setattr(module, name, getattr(clock, name), raising=False)
            patch.setattr(runtime, "monotonic", clock.monotonic)
            patch.setattr(store_builder, "RocksDBStore", open_for_owner)
            patch.setattr(folding, "while_called", lambda: acting[-1].let_call_take_its_time())
            patch.setattr("os._exit", lambda _: acting[-1].clients.link.crash())
            patch.setattr(
                folding, "answer_s", lambda: _STUCK_S if faults.is_stuck() else faults.answer_s()
            )
            yield
    finally:
        structlog.reset_defaults()


class Owner(ABC):
    """A worker with tasks of one processor, until it ends, crashes or loses them to others."""

    def __init__(self, name: str, tm_id: int, world: Surroundings) -> None:
        self.tm_id = tm_id
        config, broker = world.config, world.broker
        self.clients = MemoryClients(broker, config.transaction_timeout_ms / 1000, world.faults)
        self.is_gone = False
        self.stores: list[BytesStore] = []
        """All stores that its tasks have opened."""
        self._world = world
        self._config = config
        self._faults = world.faults
        self._clock = broker.clock
        self._tell: Callable[[str], None] = lambda what: broker.tell(f"{name} {what}")
        self._loop = EventLoopsInTurn(broker.clock)
        self._context = TaskContext(
            config,
            tm_id,
            0,
            CLUSTER_ID,
            self.clients,
            GlobalStores(config, tm_id, 0, self.clients),
            LagWatch(config, _NoAnswers(), broker.clock.monotonic, broker.clock.wall_clock_ms),
            TimeWatch(config, MemoryPositions(self.clients.link), broker.clock.monotonic),
            queries=world.queries,
            new_event_loop=self._loop.new,
        )
        self._tell("begins")

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether it has uncommitted work."""

    @property
    @abstractmethod
    def can_act(self) -> bool:
        """Whether it has something to do apart from the calls that it is in."""

    @property
    @abstractmethod
    def running(self) -> Mapping[TaskId, RunningTask]:
        """The tasks that have started."""

    @property
    def failed(self) -> Sequence[TaskId]:
        """The tasks that have failed because a call of user code did not return."""
        return ()

    @abstractmethod
    def claim(self) -> None:
        """Get all tasks that it does not have, as if a JobManager assigned them."""

    def step(self) -> None:
        """Do the next small piece of work."""
        if self.can_act:
            self._clock.advance(_STEP_S)
            self._act(self._step)

    @abstractmethod
    def leave(self) -> None:
        """Commit open work and close the tasks; that may take some more steps."""

    def crash(self) -> None:
        """End the process; if it is in the middle of a call, it ends when the call returns."""
        if not self.is_gone:
            self._tell("crashes")
            self.clients.link.cut()
            self._act(lambda: None)

    def let_call_take_its_time(self) -> None:
        """Do what happens during a call of user code."""
        faults, link = self._faults, self.clients.link
        if faults.weather.call_ms:
            self._clock.advance(faults.call_s())
        if faults.happens(faults.weather.interrupted_call):
            for _ in range(faults.random.randint(1, _MOST_ACTS)):
                self._act_beside_call()
        if faults.is_stuck():
            self._tell("is stuck in a call")
            for _ in range(int(_STUCK_S / _GLANCE_S)):
                self._clock.advance(_GLANCE_S)
                self._act_beside_call()
            self._tell("comes back from a call")
        if link.is_cut:
            raise WorkerCrashedError

    def _act_beside_call(self) -> None:
        """Let others act during a call of user code."""
        self.clients.link.let_others_act()

    def _act(self, action: Callable[[], None]) -> None:
        if self.is_gone:
            return
        acting = self._world.acting
        acting.append(self)
        try:
            action()
        except WorkerCrashedError:
            assert self.clients.link.is_cut, "an owner crashes in the hands of another one"
        finally:
            acting.pop()
        if self.clients.link.is_cut and self not in acting:
            self.end()

    def end(self) -> None:
        """End as a process does, which closes all its files."""
        self.is_gone = True
        self._loop.close()
        for store in self.stores:
            with suppress(Exception):
                store.close()

    def _give_up(self, task_id: TaskId, reason: str) -> None:
        """End after a `NonRetriableError`, which may only happen to a task that was fenced."""
        self._tell(f"fails: {reason}")
        is_fenced = self.clients.is_fenced(self._config.topic_names.transactional_id(task_id))
        assert is_fenced, f"a task fails that nobody has taken over: {reason}"
        self.clients.link.cut()

    @abstractmethod
    def _step(self) -> None: ...


class TaskOwner(Owner):
    """Runs one task, as the loop of a PipelineThread would, but without its threads."""

    def __init__(
        self, name: str, tm_id: int, world: Surroundings, time_watch: TimeWatch | None = None
    ) -> None:
        """`time_watch` is one that it shares with others; by default, it has its own."""
        super().__init__(name, tm_id, world)
        if time_watch is not None:
            self._context = replace(self._context, time_watch=time_watch)
        (self._replica,) = world.replicas
        self._assigned = AssignedTask(self._replica, self._context, epoch=0)
        self._reader = self.clients.reader(self._config.topic_names.fetch_group, is_watched=True)
        self._task: RunningTask | None = None
        self._since_s: float | None = None  # when the first uncommitted work began
        self._occupied_until_s = 0.0
        self._wants_commit = self._has_more = False

    @property
    def is_busy(self) -> bool:
        """See `Owner.is_busy`."""
        task = self._task
        works = task and (task.has_uncommitted or task.has_calls or task.has_records)
        return bool(works) or self._occupied_until_s > self._clock.now_s

    @property
    def running(self) -> Mapping[TaskId, RunningTask]:
        """See `Owner.running`."""
        return {} if self._task is None else {self._replica.task: self._task}

    @property
    def can_act(self) -> bool:
        """See `Owner.can_act`."""
        return not self.is_gone and self not in self._world.acting

    @property
    def memory(self) -> TaskMemory:
        """The state of its task that outlasts its starts, such as its committed figures."""
        return self._assigned.memory

    def claim(self) -> None:
        """See `Owner.claim`; does nothing, since this owner ends if it loses its only task."""

    def leave(self) -> None:
        """See `Owner.leave`."""
        if self.can_act:
            self._act(self._leave)

    def _step(self) -> None:
        if self._task is None:
            self._start()
        else:
            self._work(self._task)

    def _start(self) -> None:
        self._tell("starts the task")
        start = self._assigned.new_start()

        def run() -> None:
            task = self._task = start.run()
            task.readers = dict.fromkeys(task.partitions, self._reader)
            self._reader.assign(task.read)
            self._since_s, self._wants_commit, self._has_more = None, False, False

        self._attempt(run)

    def _work(self, task: RunningTask) -> None:
        fetched = self._reader.fetch(
            self._config.max_batch_records, 0 if self._has_more else _WAIT_S
        )
        for batch in fetched.batches:
            task.add(batch)
        for partition, offset in fetched.ends:
            task.reached_end(partition, offset)
        for error in fetched.errors:
            if self._task is not None and not self._attempt(partial(self._lose, task, error)):
                return
        self._loop.run_once()
        if self._occupied_until_s <= self._clock.now_s:
            self._occupied_until_s = self._clock.now_s + self._faults.occupied_s()
        if self._occupied_until_s > self._clock.now_s or self._turn(task):
            self._pause_full(task)
            self._commit_if_due(task)

    def _lose(self, task: RunningTask, error: ReadError) -> None:
        raise task.loss_of_input(error)

    def _turn(self, task: RunningTask) -> bool:
        """Do a turn; return whether the task still runs."""
        is_due = task.wake_in_ms() == 0 or task.is_time_due
        if not (task.has_records or task.has_calls or is_due):
            return True

        def turn() -> None:
            began_s = self._clock.now_s
            done = task.turn(began_s + min(self._config.commit_interval_ms / 1000, _TURN_S))
            self._wants_commit |= done.wants_commit
            self._has_more = done.has_more
            if task.has_uncommitted and self._since_s is None:
                self._since_s = began_s

        return self._attempt(turn)

    def _pause_full(self, task: RunningTask) -> None:
        paused = self._reader.paused
        full = {p for p in task.partitions if task.is_overfull(p)} - paused
        self._reader.pause(full)
        self._reader.resume({p for p in paused if not task.is_full(p)})

    def _commit_if_due(self, task: RunningTask) -> None:
        age_s = 0.0 if self._since_s is None else self._clock.now_s - self._since_s
        is_due = (
            (task.is_at_its_end or self._wants_commit)
            or age_s >= self._config.commit_interval_ms / 1000
            or self._faults.happens(_EARLY_COMMIT)
        )
        if task.has_uncommitted and is_due:
            self._commit(task)
        elif not task.has_uncommitted and task.has_lost_connection:
            self._attempt(task.require_connection)
        elif not task.has_uncommitted and task.needs_refresh and not task.has_calls:
            self._attempt(task.refresh)

    def _commit(self, task: RunningTask) -> None:
        self._attempt(task.commit)
        self._since_s, self._wants_commit = None, False

    def _attempt(self, action: Callable[[], object]) -> bool:
        """Do something; on an error that may pass, drop the task, which the next step restarts."""
        try:
            action()
        except NonRetriableError as error:
            self._give_up(self._replica.task, str(error))
            return False
        except (FencedError, TransactionFailedError, StoreLockedError) as error:
            self._tell(f"drops the task: {type(error).__name__}: {error}")
            self._drop()
            return False
        return True

    def _drop(self) -> None:
        if self._task is not None:
            self._reader.unassign(self._task.partitions)
            self._task.close()
            self._task = None

    def _leave(self) -> None:
        if self._task is not None and self._task.has_uncommitted:
            self._commit(self._task)
        self._drop()
        self._tell("has left")
        self.clients.link.cut()


class ThreadOwner(Owner):
    """Runs a PipelineThread whose channel has no driver; its parallel work is done in sequence."""

    def __init__(self, name: str, tm_id: int, world: Surroundings) -> None:
        super().__init__(name, tm_id, world)
        self._channel = QuietChannel(self._clock)
        self._background = BackgroundInTurn(self._clock, world.faults.random)
        channel: Any = self._channel
        self._thread = PipelineThread(self._context, channel, self._background)
        self._is_looping = False
        self.claim()

    @property
    def is_busy(self) -> bool:
        """See `Owner.is_busy`."""
        running = [task.running for task in self._thread._tasks.values()]
        return self._background.is_busy or any(
            task.has_uncommitted or task.has_calls for task in running if task is not None
        )

    @property
    def running(self) -> Mapping[TaskId, RunningTask]:
        """See `Owner.running`."""
        found = {task_id: task.running for task_id, task in self._thread._tasks.items()}
        return {task_id: running for task_id, running in found.items() if running is not None}

    @property
    def can_act(self) -> bool:
        """See `Owner.can_act`."""
        return not self.is_gone and (not self._is_looping or self._background.can_run)

    @property
    def failed(self) -> Sequence[TaskId]:
        """See `Owner.failed`."""
        thread = self._thread
        tasks = () if self.is_gone else thread.tasks
        return [t for t in tasks if thread.status(t).state is TaskState.FAILED]

    def claim(self) -> None:
        """See `Owner.claim`."""
        self._channel.silent_since_s = None
        for replica in self._world.replicas:
            if replica.task not in self._thread.tasks:
                self._channel.commands.append(channel_messages.Assign(replica, epoch=0))

    def silence_driver(self) -> None:
        """Send the thread nothing more from the driver, so that its lease runs out."""
        self._tell("hears nothing of its driver any more")
        self._channel.silent_since_s = self._clock.now_s

    def revoke(self, task_id: TaskId) -> None:
        """Have the driver revoke a task."""
        self._tell(f"is to give {task_id} back")
        self._channel.commands.append(channel_messages.Revoke(task_id))

    def leave(self) -> None:
        """See `Owner.leave`."""
        self._tell("is to stop")
        self._channel.commands.append(channel_messages.Stop())

    def _step(self) -> None:
        deeds = [self._loop.run_once] if self._loop.is_running else []
        if self._background.can_run:
            deeds.append(self._background.run)
        if not self._is_looping:
            deeds.append(self._round)
        self._faults.random.choice(deeds)()

    def _round(self) -> None:
        self._is_looping = True
        try:
            self._thread.step()
        finally:
            self._is_looping = False
        for task_id in self.failed:
            reason = self._thread.status(task_id).reason
            if "max_process_time_ms" not in reason:
                self._give_up(task_id, reason)
        if not self._thread.tasks:
            self._tell("has no tasks any more")
            self.clients.link.cut()

    def _act_beside_call(self) -> None:
        if self._faults.random.random() < 0.5 or not self.can_act:
            super()._act_beside_call()
        else:
            self.step()


class _NoAnswers:
    """Brokers for a `LagWatch` that is never started, and so never asks them."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asks for {name}")

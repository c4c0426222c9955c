"""Runs the real `Task` on the brokers in memory, a step at a time, as a PipelineThread would.

All that knows how a task is started, fed and committed is in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog

from common.config import Config
from common.kafka.clients import FencedError, HopelessError, TransactionFailedError
from common.messages import ProcessorReplica
from common.status import TaskState
from streams.stores import builder as store_builder
from streams.stores.rocksdb import StoreLockedError
from taskmanager import assigned_task, global_stores, restore
from taskmanager import task as task_module
from taskmanager.assigned_task import TaskContext
from taskmanager.global_stores import GlobalStores
from taskmanager.pipeline_thread import fetcher
from taskmanager.task import Task
from taskmanager.task_stores import job_directory
from tests.memory.broker import CLUSTER_ID, Broker
from tests.memory.clients import MemoryClients
from tests.memory.clock import Clock
from tests.memory.disk import Disk
from tests.memory.faults import Faults
from tests.memory.link import WorkerCrashedError
from tests.memory.producer import MemoryProducer

_TIMED = (task_module, assigned_task, restore, global_stores)
_WAIT_S = 0.05


@contextmanager
def simulated(broker: Broker, disk: Disk) -> Iterator[None]:
    """Give the engine the brokers' clock and a disk in memory; its log goes into the story."""

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
    put(store_builder, "RocksDBStore", disk.open)
    structlog.configure(processors=[note])
    try:
        yield
    finally:
        structlog.reset_defaults()
        for module, name, value in replaced:
            setattr(module, name, value)


class Owner:
    """A worker that runs one task, until it ends, crashes or is fenced."""

    def __init__(
        self,
        name: str,
        tm_id: int,
        replica: ProcessorReplica,
        config: Config,
        broker: Broker,
        disk: Disk,
        faults: Faults,
    ) -> None:
        self.tm_id = tm_id
        self.clients = MemoryClients(broker, config.transaction_timeout_ms / 1000, faults)
        self.is_acting = False
        """Whether it is in a call in which others act."""
        self.is_gone = False
        self._config = config
        self._tell: Callable[[str], None] = lambda what: broker.tell(f"{name} {what}")
        self._end_process = partial(disk.unlock, job_directory(config, tm_id))
        self._reader = fetcher(config, self.clients)
        context = TaskContext(
            config,
            tm_id,
            0,
            CLUSTER_ID,
            self.clients,
            self._reader,
            GlobalStores(config, tm_id, 0, self.clients),
        )
        self.task = Task(replica, context, epoch=0)
        self.is_running = False

    @property
    def is_busy(self) -> bool:
        """Whether there is something that it has not committed."""
        return self.task.has_open_transaction or self.task.has_gathered

    def step(self) -> None:
        """Start the task, or do one turn of it."""
        self._act(self._turn if self.is_running else self._start)

    def leave(self) -> None:
        """Commit what is open, and close the task."""
        self._act(self._leave)

    def crash(self) -> None:
        """End the process; one in the middle of a call ends when it comes back."""
        if not self.is_gone:
            self._tell("crashes")
            self.clients.link.cut()
            if not self.is_acting:
                self._vanish()

    def _act(self, action: Callable[[], None]) -> None:
        if self.is_acting or self.is_gone:
            return
        self.is_acting = True
        try:
            action()
        except WorkerCrashedError:
            self._vanish()
        finally:
            self.is_acting = False

    def _vanish(self) -> None:
        self.is_gone = True
        self._end_process()

    def _start(self) -> None:
        self._tell("starts the task")
        if self._attempt(self.task.start):
            self._reader.assign(self.task.positions)
            self.is_running = True

    def _turn(self) -> None:
        task = self.task
        fetched = self._reader.fetch(self._config.max_batch_records, self._wait_s())
        for batch in fetched.batches:
            if self.is_running:
                self._attempt(partial(task.process, batch))
        for partition, offset in fetched.ends:
            if self.is_running:
                task.reached_end(partition, offset)
        for _, reason in fetched.errors:
            if self.is_running:
                self._attempt(partial(task.lose_input, reason))
        if self.is_running and task.needs_turns:
            self._attempt(task.turn)
        if self.is_running:
            self._pause_full()
            self._commit_if_due(nothing_came=not fetched.batches)

    def _wait_s(self) -> float:
        return 0 if self.task.has_open_transaction or self.task.has_gathered else _WAIT_S

    def _pause_full(self) -> None:
        full = {p for p in self.task.partitions if self.task.is_full(p)}
        paused = self._reader.paused
        if full != paused:
            self._reader.pause(full - paused)
            self._reader.resume(paused - full)

    def _commit_if_due(self, nothing_came: bool) -> None:
        task = self.task
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
            if self._is_rightful():
                raise
            self._tell(f"fails: {error}")
            self.task.fail(str(error))
            self._vanish()
            self.is_running = False
            return False
        except (FencedError, TransactionFailedError, StoreLockedError) as error:
            self._tell(f"drops the task: {type(error).__name__}: {error}")
            self._drop()
            return False
        return True

    def _is_rightful(self) -> bool:
        producer = self.task._producer
        assert isinstance(producer, MemoryProducer)
        return not producer.is_fenced

    def _drop(self) -> None:
        if self.is_running:
            self._reader.resume(self._reader.paused)
            self._reader.unassign(self.task.partitions)
        self.is_running = False
        self.task.drop()
        self.task.state = TaskState.STARTING

    def _leave(self) -> None:
        if self.is_running and self.task.has_open_transaction:
            self._attempt(self.task.commit)
        self._drop()
        self._end_process()
        self.is_gone = True
        self._tell("has left")

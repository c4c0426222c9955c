"""The PipelineThread: a long-running Spark task that loops over its tasks' transactions."""

from __future__ import annotations

import faulthandler
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import structlog

from common import logs
from common.config import Config
from common.kafka.admin import Admin
from common.kafka.clients import FencedError, HopelessError, Partition, TransactionFailedError
from common.kafka.data import Fetched
from common.messages import MISSED_BEATS, ProcessorReplica
from common.nodes import TaskId
from common.status import TaskState
from common.topics import TopicNames
from streams.group_task import ProcessingFailedError
from streams.spark.spec import SparkLostError
from streams.stores.rocksdb import (
    StoreCorruptedError,
    StoreLockedError,
    StoreUnavailableError,
)
from taskmanager.assigned_task import AssignedTask, TaskContext
from taskmanager.channel import Message, WorkerChannel
from taskmanager.clients import Clients, KafkaClients, Reader
from taskmanager.global_stores import GlobalStores
from taskmanager.query_channel import RemoteQueries
from taskmanager.standby_task import StandbyTask
from taskmanager.task import Task
from taskmanager.task_stores import check_writable

IDLE_WAIT_S = 0.05
CLOSING_WAIT_S = 0.01
PARALLEL_CALLS = 16
STANDBY_STARTS = 2
FENCED_FOR_GOOD = 2
FENCED_WAIT_HEARTBEATS = 1.5
CALM_S = 60
MAX_RESTART_DELAY_S = 30.0


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """What a PipelineThread is launched with; travels inside the Spark task."""

    config: Config
    tm_id: int
    thread: int
    address: tuple[str, int]
    authkey: bytes
    queries: tuple[str, int]
    """Where the driver takes queries; with the same key."""


def run(settings: ThreadSettings) -> None:
    """Run a PipelineThread until the driver stops it or is gone. The body of the Spark task."""
    logs.configure(settings.config.log_format, settings.config.log_level)
    structlog.contextvars.bind_contextvars(task_manager=settings.tm_id, thread=settings.thread)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    if not settings.config.spark.is_local:
        check_writable(settings.config)
    admin = Admin(settings.config)
    clients = KafkaClients(settings.config, admin)
    reader = fetcher(settings.config, clients)
    cluster_id = admin.check_broker()
    tm_id, thread = settings.tm_id, settings.thread
    context = TaskContext(
        settings.config,
        tm_id,
        thread,
        cluster_id,
        clients,
        reader,
        GlobalStores(settings.config, tm_id, thread, clients),
        RemoteQueries(settings.queries, settings.authkey),
    )
    # Now that nothing is left to wait for, since the driver counts from the hello on.
    channel = WorkerChannel(settings.address, settings.authkey, settings.thread)
    with closing(channel), closing(reader):
        PipelineThread(context, channel).loop()


def fetcher(config: Config, clients: Clients) -> Reader:
    """Return a reader for the input of tasks."""
    return clients.reader(TopicNames.of(config).fetch_group, is_watched=True)


@dataclass(slots=True)
class _Trouble:
    """How often a task failed lately; decides how long it waits before it starts again.

    What it has committed in between shows that it is not the same failure for ever.
    """

    failures: int = 0
    fenced: int = 0
    last_s: float = 0.0

    def count(self, fenced: bool, has_committed: bool) -> None:
        now = time.monotonic()
        if now - self.last_s > CALM_S:
            self.failures = self.fenced = 0
        if has_committed:
            self.failures = 0
        self.failures += 1
        self.fenced += fenced
        self.last_s = now

    @property
    def delay_s(self) -> float:
        return (
            0.0 if self.failures <= 1 else min(0.5 * 2 ** (self.failures - 2), MAX_RESTART_DELAY_S)
        )


@dataclass(slots=True)
class _Lane:
    """A consumer and the tasks that it fetches for, no two of them with an input in common."""

    reader: Reader
    owners: dict[Partition, AssignedTask] = field(default_factory=dict)

    def pause_full(self) -> None:
        """Pause the partitions of which too many records wait, and resume the others."""
        full = {partition for partition, task in self.owners.items() if task.is_full(partition)}
        paused = self.reader.paused
        if full != paused:
            self.reader.pause(full - paused)
            self.reader.resume(paused - full)


class PipelineThread:
    """Fetches records for its tasks, lets each process its own, and commits them side by side."""

    def __init__(self, context: TaskContext, channel: WorkerChannel) -> None:
        self._context = context
        self._channel = channel
        # A consumer reads a partition once, but two processors may both read the source.
        self._lanes = [_Lane(context.reader)]
        self._config = context.config
        self._interval_s = context.config.heartbeat_interval_ms / 1000
        self._tasks: dict[TaskId, AssignedTask] = {}
        self._starting: dict[TaskId, Future[None]] = {}
        self._start_at: dict[TaskId, float] = {}
        self._trouble: dict[TaskId, _Trouble] = {}
        self._stopping = False
        self._report_at = 0.0
        # Two, as a commit must not wait for a restore.
        self._starters = ThreadPoolExecutor(PARALLEL_CALLS, thread_name_prefix="start")
        # Copies can wait for those who need the state at once.
        self._standby_starters = ThreadPoolExecutor(STANDBY_STARTS, thread_name_prefix="standby")
        self._committers = ThreadPoolExecutor(PARALLEL_CALLS, thread_name_prefix="commit")

    def loop(self) -> None:
        """Run until `stop` comes, then commit and close; give up if the driver is gone."""
        try:
            while not self._stopping:
                self._obey()
                self._watch_lease()
                self._watch_starts()
                self._work()
                self._report()
            self._release(list(self._tasks.values()))
            while self._starting:
                self._watch_starts()
                time.sleep(CLOSING_WAIT_S)
            self._channel.send({"type": "stopped"})
        except Exception:
            structlog.get_logger().exception("PipelineThread fails")
            raise
        finally:
            for pool in (self._starters, self._standby_starters, self._committers):
                pool.shutdown(wait=True, cancel_futures=True)
            for task in self._tasks.values():
                task.drop()
            for lane in self._lanes[1:]:
                lane.reader.close()

    def _obey(self) -> None:
        wait_s = 0 if any(lane.owners for lane in self._lanes) else IDLE_WAIT_S
        revoked = []
        while (message := self._channel.receive(wait_s)) is not None:
            wait_s = 0
            match message["type"]:
                case "assign":
                    self._assign(message)
                case "revoke":
                    revoked.append(TaskId.parse(message["task"]))
                case "stop":
                    self._stopping = True
        self._release([self._tasks[task_id] for task_id in revoked if task_id in self._tasks])

    def _assign(self, message: Message) -> None:
        replica = ProcessorReplica.from_json(message["replica"], message["parameters"])
        if replica.task in self._tasks:
            return
        make = StandbyTask if replica.task.standby else Task
        task = make(replica, self._context, message["epoch"])
        self._tasks[replica.task] = task
        self._start_at[replica.task] = 0.0

    def _release(self, tasks: Sequence[AssignedTask]) -> None:
        """Commit and close tasks, and tell the driver of each that it is free for others."""
        self._commit([task for task in tasks if task.has_open_transaction])
        for task in tasks:
            # A failed commit may have closed it already.
            if task.replica.task in self._tasks:
                self._abandon(task)
                self._report()

    def _abandon(self, task: AssignedTask) -> None:
        """Close a task as it is; one that starts in the background closes when that has ended."""
        if task.replica.task in self._starting:
            task.cancel()
        else:
            self._forget(task)

    def _forget(self, task: AssignedTask) -> None:
        task_id = task.replica.task
        self._detach(task)
        task.drop()
        del self._tasks[task_id]
        self._start_at.pop(task_id, None)
        self._channel.send({"type": "closed", "task": str(task_id)})
        task.log.info("task closed")

    def _watch_lease(self) -> None:
        """Stop if the driver is gone; give all tasks up if it is silent for three heartbeats.

        By then the JobManager has given them to others, who have fenced these.
        """
        if self._channel.is_lost:
            raise ConnectionError("the TaskManager's driver is gone")
        silence_s = time.monotonic() - self._channel.last_heard_s
        if silence_s > MISSED_BEATS * self._interval_s:
            for task in [task for task in self._tasks.values() if not task.is_cancelled]:
                task.log.warning("lease ran out", silent_seconds=round(silence_s, 1))
                self._abandon(task)
                self._report()

    def _watch_starts(self) -> None:
        now = time.monotonic()
        for task_id in [t for t, due in self._start_at.items() if due <= now]:
            del self._start_at[task_id]
            pool = self._standby_starters if task_id.standby else self._starters
            self._starting[task_id] = pool.submit(self._tasks[task_id].start)
        for task_id in [t for t, future in self._starting.items() if future.done()]:
            future, task = self._starting.pop(task_id), self._tasks[task_id]
            if task.is_cancelled:
                self._forget(task)
            elif self._attempt(task, future.result):
                lane = self._find_lane(task)
                lane.owners.update((partition, task) for partition in task.partitions)
                lane.reader.assign(task.positions)
                task.reader = lane.reader

    def _settled(self) -> list[AssignedTask]:
        """Return the tasks that do not start: another thread works on those that do."""
        return [task for task_id, task in self._tasks.items() if task_id not in self._starting]

    def _find_lane(self, task: AssignedTask) -> _Lane:
        for lane in self._lanes:
            if lane.owners.keys().isdisjoint(task.partitions):
                return lane
        self._lanes.append(_Lane(fetcher(self._config, self._context.clients)))
        return self._lanes[-1]

    def _work(self) -> None:
        lanes = [lane for lane in self._lanes if lane.owners]
        if not lanes:
            return
        tasks = self._tasks.values()
        is_busy = any(task.has_open_transaction or task.has_gathered for task in tasks)
        wait_s = 0 if is_busy else IDLE_WAIT_S / len(lanes)
        nothing_came = True
        for lane in lanes:
            fetched = lane.reader.fetch(self._config.max_batch_records, wait_s)
            self._update_global_stores()
            for batch in fetched.batches:
                task = lane.owners.get((batch.topic, batch.partition))
                if task is not None and task.is_running:
                    nothing_came &= bool(task.replica.task.standby)
                    self._attempt(task, partial(task.process, batch))
            self._take_note(lane, fetched)
        for task in [task for task in self._settled() if task.needs_turns]:
            if task.is_running:
                self._attempt(task, task.turn)
        for lane in lanes:
            lane.pause_full()
        self._commit_due(nothing_came)

    def _update_global_stores(self) -> None:
        """Let tasks see what had come to global topics when their own records came."""
        failed = self._context.global_stores.update(self._config.max_batch_records)
        for task in [task for task in self._settled() if task in failed] if failed else ():
            if task.state is TaskState.RUNNING:
                self._attempt(task, partial(_throw, failed[task]))

    def _take_note(self, lane: _Lane, fetched: Fetched) -> None:
        for partition, offset in fetched.ends:
            if partition in lane.owners:
                lane.owners[partition].reached_end(partition, offset)
        for partition, reason in fetched.errors:
            task = lane.owners.get(partition)
            if task is not None:
                where = f"{partition[0]}[{partition[1]}]"
                self._attempt(task, partial(task.lose_input, f"{where}: {reason}"))

    def _commit_due(self, nothing_came: bool) -> None:
        """Commit what is due: when the input is drained or the commit interval has passed."""
        interval_s = self._config.commit_interval_ms / 1000
        self._commit(
            [
                task
                for task in self._settled()
                if task.has_open_transaction
                and (
                    nothing_came
                    or task.is_caught_up
                    or task.wants_commit
                    or task.transaction_age_s >= interval_s
                )
            ]
        )
        # All at once, not each when its first records come: those behind others would begin to
        # start when these have done so.
        for task in [task for task in self._settled() if task.has_lost_connection]:
            self._attempt(task, task.require_connection)
        for task in [task for task in self._settled() if task.needs_refresh]:
            self._finish_commit(task, task.refresh)

    def _commit(self, tasks: Sequence[AssignedTask]) -> None:
        """Commit tasks side by side."""
        if len(tasks) == 1:
            self._finish_commit(tasks[0], tasks[0].commit)
            return
        futures = [(task, self._committers.submit(task.commit)) for task in tasks]
        for task, future in futures:
            self._finish_commit(task, future.result)

    def _finish_commit(self, task: AssignedTask, commit: Callable[[], bool]) -> None:
        def finish() -> None:
            if not commit():
                raise TransactionFailedError("a connection broke during the commit")

        self._attempt(task, finish)

    def _attempt(self, task: AssignedTask, action: Callable[[], object]) -> bool:
        """Do something with a task; the one door by which its errors leave.

        Then report, if that is due: a thread that does much without reporting would look hung.
        """
        try:
            action()
            return True
        except (HopelessError, ProcessingFailedError) as error:
            self._stop_for_good(task, str(error))
        except FencedError as error:
            self._start_again(task, f"fenced: {error}", fenced=True)
        except (
            TransactionFailedError,
            StoreLockedError,
            StoreCorruptedError,
            StoreUnavailableError,
            SparkLostError,
            OSError,
        ) as error:
            self._start_again(task, str(error))
        except Exception as error:
            task.log.exception("unexpected error")
            self._start_again(task, f"{type(error).__name__}: {error}")
        finally:
            self._report()
        return False

    def _stop_for_good(self, task: AssignedTask, reason: str) -> None:
        self._detach(task)
        task.fail(reason)
        self._report_at = 0.0

    def _start_again(self, task: AssignedTask, reason: str, fenced: bool = False) -> None:
        """Drop the task's clients and begin anew from Kafka, after a pause if it keeps failing.

        A task that is fenced again and again belongs to somebody else: it is given up.
        """
        self._detach(task)
        task_id = task.replica.task
        trouble = self._trouble.setdefault(task_id, _Trouble())
        # The broker itself fences a transaction that outlives its timeout: no sign of a rival.
        timeout_s = self._config.transaction_timeout_ms / 1000
        trouble.count(fenced and task.transaction_age_s < timeout_s, task.has_committed)
        if trouble.fenced >= FENCED_FOR_GOOD:
            task.log.warning("task given up", reason=reason)
            del self._trouble[task_id]
            self._forget(task)
            return
        delay_s = trouble.delay_s
        if fenced:
            # If somebody else owns the task, the JobManager revokes it here in the meantime.
            delay_s = max(delay_s, FENCED_WAIT_HEARTBEATS * self._interval_s)
        task.log.warning("task starts again", reason=reason, delay_s=delay_s)
        task.drop()
        task.state, task.reason = TaskState.STARTING, reason
        task.restarts += 1
        self._start_at[task_id] = time.monotonic() + delay_s
        self._report_at = 0.0

    def _detach(self, task: AssignedTask) -> None:
        for lane in self._lanes:
            if task.partitions and lane.owners.get(task.partitions[0]) is task:
                # A pause outlasts the assignment, whoever gets the partition next.
                lane.reader.resume(lane.reader.paused.intersection(task.partitions))
                lane.reader.unassign(task.partitions)
                for partition in task.partitions:
                    del lane.owners[partition]

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._report_at:
            self._report_at = now + min(0.5, self._interval_s / 2)
            tasks = [task.status().to_json() for task in self._tasks.values()]
            self._channel.send({"type": "status", "tasks": tasks})


def _throw(error: Exception) -> None:
    raise error


def spark_body(settings: ThreadSettings) -> Callable[[Iterable[int]], Iterator[int]]:
    """Return the function that Spark runs in the worker, over a partition of one element."""

    def body(_: Iterable[int]) -> Iterator[int]:
        run(settings)
        return iter(())

    return body

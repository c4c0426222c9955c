"""A whole cluster in one process: real cores with simulated Kafka, threads, clocks and faults."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from random import Random
from typing import TypeVar

from msgspec import structs

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ClassSpec, CountSpec
from kafka_pipeline.common.protocol.messages import MISSED_BEATS, ProcessorReplica, replicas
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from tests.simulation.broker import NAMES, Broker
from tests.simulation.fences import Fences, TaskInstance
from tests.simulation.pipeline_thread import INTERVAL_MS, FakePipelineThread, Pace
from tests.simulation.processes import JobManagerProcess, Process, TaskManagerProcess

T = TypeVar("T")

STEP_MS = 250
LONGEST_DELAY_MS = 5000
TRACE_LINES = 400
OWNED_WITHIN_BEATS = 12
"""This long after the last fault, a live TaskManager owns each task; and no task stays asked
back for longer."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a cluster is."""

    threads: tuple[int, ...]
    """The number of threads of each TaskManager; indexes are TaskManager ids."""
    processors: int
    parallelism: int
    standbys: int = 0

    @classmethod
    def draw(cls, random: Random) -> Scale:
        """Return a small scale most of the time; one in 20 is larger, one in 150 large, and one in
        1000 has 50 TaskManagers and 1000 tasks."""
        size = random.random()
        if size < 0.001:
            tms, processors, parallelism = (50, 50), (10, 10), (100, 100)
        elif size < 0.008:
            tms, processors, parallelism = (20, 50), (2, 10), (20, 100)
        elif size < 0.05:
            tms, processors, parallelism = (5, 12), (1, 5), (5, 20)
        else:
            tms, processors, parallelism = (1, 4), (1, 3), (1, 4)
        most_threads = random.choice((1, 3))
        threads = tuple(random.randint(1, most_threads) for _ in range(random.randint(*tms)))
        standbys = random.choice((0, 0, 1, 2))
        return cls(threads, random.randint(*processors), random.randint(*parallelism), standbys)


@dataclass(frozen=True)
class _Replica(ProcessorReplica):
    """A processor replica that computes its fingerprint once, since each report needs it."""

    @cached_property
    def fingerprint(self) -> str:
        return super().fingerprint


def _processor(number: int) -> PipelineProcessor:
    """Return a processor; every other one runs user code."""
    code = "shop:Async" if number % 4 == 3 else "shop:A"
    spec = ClassSpec(code=code) if number % 2 else CountSpec()
    stores = (LoggedStore("store"),)
    return PipelineProcessor(f"P{number}", spec, (SINK,), (SOURCE,), stores=stores)


class Cluster:
    """Processes on one broker. `mishap` breaks something; `mend` ends all faults."""

    def __init__(self, random: Random, scale: Scale, pace: Pace | None = None) -> None:
        processors = tuple(_processor(number) for number in range(scale.processors))
        self.random = random
        self.scale = scale
        self.now_ms = 0
        self.broker = Broker(random)
        self.fences = Fences()
        self.replicas = [
            _Replica(**{field.name: getattr(replica, field.name) for field in fields(replica)})
            for replica in replicas(Pipeline(processors, NAMES, scale.parallelism), scale.standbys)
        ]
        self.jobmanagers: list[JobManagerProcess] = []
        self.taskmanagers: list[TaskManagerProcess] = []
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.present: set[int] | None = None
        """The TaskManagers that are kept running, along with a JobManager; None during faults."""
        self.fault_ms = 0
        """When the last fault occurred."""
        self.is_gentle = False
        """Whether nothing happens that makes a live TaskManager look dead or slow."""
        self._edits = 0
        self._pace = pace or Pace()
        self._later: list[tuple[int, Callable[[], object]]] = []
        self._started = 0

    def log(self, text: str) -> None:
        """Add a line to the story that a failure prints."""
        self.trace.append(f"{self.now_ms / 1000:8.2f} {text}")

    def step(self) -> None:
        """Let a quarter of a heartbeat interval pass."""
        self.now_ms += STEP_MS
        self.broker.advance(self.now_ms)
        self.fences.advance(self.now_ms, is_away=self.broker.is_away)
        if self._later:
            due = [action for at_ms, action in self._later if at_ms <= self.now_ms]
            self._later = [entry for entry in self._later if entry[0] > self.now_ms]
            for action in due:
                action()
        processes: list[JobManagerProcess | TaskManagerProcess]
        processes = [*self.jobmanagers, *self.taskmanagers]
        self.random.shuffle(processes)
        for process in processes:
            process.step(self.now_ms)
        self.jobmanagers = [process for process in self.jobmanagers if process.alive]
        self.taskmanagers = [
            process
            for process in self.taskmanagers
            if process.alive or any(thread.alive for thread in process.orphans)
        ]
        if self.present is not None:
            self._keep(self.present)
        self._check_step()

    def _check_step(self) -> None:
        """Check what must hold at any time, and what must hold some time after the last fault."""
        if self.is_gentle:
            taken = self.fences.taken_from_the_living
            assert not taken, f"{taken} tasks were taken from TaskManagers that live and are heard"
        if self.present is None or self.now_ms - self.fault_ms <= OWNED_WITHIN_BEATS * INTERVAL_MS:
            return
        live = {process.name for process in self.live_taskmanagers}
        for jobmanager in self.jobmanagers:
            names = jobmanager.state.live
            missing = [
                t for t, tm in jobmanager.owners.items() if tm is None or names[tm] not in live
            ]
            assert not missing, f"still without an owner: {missing}"
            asked_back_ms = jobmanager.ledger.asked_back_ms
            waited_ms = self.now_ms - max(asked_back_ms or self.now_ms, self.fault_ms)
            assert waited_ms <= OWNED_WITHIN_BEATS * INTERVAL_MS, "a task is not given back"

    def run(self, intervals: int) -> None:
        """Let a number of heartbeat intervals pass."""
        for _ in range(intervals * INTERVAL_MS // STEP_MS):
            self.step()

    def later(self, max_ms: int, action: Callable[[], object]) -> None:
        """Schedule an action at a random time within `max_ms`; `mend` cancels it."""
        self._later.append((self.now_ms + self.random.randrange(max_ms) + 1, action))

    def start_jobmanager(self) -> JobManagerProcess:
        """Start an additional JobManager."""
        process = JobManagerProcess(
            self._name("jm"), self.broker, self.random, self.log, self.replicas, self.tm_number
        )
        self.log(f"{process.name} starts")
        self.jobmanagers.append(process)
        return process

    def start_taskmanager(self, tm_id: int) -> TaskManagerProcess:
        """Start a TaskManager, even if one with this id is running."""
        process = TaskManagerProcess(
            self._name(f"tm{tm_id}"),
            self.broker,
            self.random,
            self.log,
            tm_id,
            self.scale.threads[tm_id],
            self.fences,
            self._pace,
        )
        self.log(f"{process.name} starts with {process.threads_num} threads")
        self.taskmanagers.append(process)
        return process

    def _name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}#{self._started}"

    @property
    def tm_number(self) -> int:
        """The number of TaskManagers that `config.yaml` asks for."""
        return len(self.scale.threads)

    @property
    def tasks(self) -> list[TaskId]:
        """All tasks of the pipeline."""
        return [replica.task for replica in self.replicas]

    @property
    def active_tasks(self) -> list[TaskId]:
        """All tasks except standbys."""
        return [task for task in self.tasks if not task.standby]

    @property
    def live_taskmanagers(self) -> list[TaskManagerProcess]:
        """The TaskManagers whose driver is alive, including paused ones."""
        return [process for process in self.taskmanagers if process.alive]

    @property
    def commands_sent(self) -> int:
        """How many commands and refusals the live JobManagers have written."""
        return sum(process.commands_sent + process.refusals for process in self.jobmanagers)

    def mishap(self) -> None:
        """Break one thing at random, or have the operator do something to the cluster."""
        gentle = (
            self.crash_taskmanager,
            self.stop_taskmanager,
            self.crash_thread,
            self.fail_task,
            self.fail_dependency,
            self.pause_jobmanager,
        )
        rough = (
            self.pause_taskmanager,
            self.hang_taskmanager,
            self.silence_taskmanager,
            self.start_namesake,
            self.hang_thread,
            self.hold_task,
            self.crash_jobmanager,
            self.edit_pipeline,
            self.start_rival,
            self.break_writes,
            self.take_kafka_away,
        )
        self.random.choice(gentle if self.is_gentle else gentle + rough)()

    def crash_taskmanager(self) -> None:
        """`kill -9` of a driver; it may be started again."""
        for process in self._one_of(self.live_taskmanagers):
            self.log(f"{process.name} is killed")
            process.crash(self.now_ms)
            self.later(20_000, partial(self._replace, process.tm_id))

    def stop_taskmanager(self) -> None:
        """SIGTERM to a TaskManager."""
        for process in self._one_of(self.live_taskmanagers):
            self.log(f"{process.name} is told to stop")
            process.stop(self.now_ms)
            self.later(30_000, partial(self._replace, process.tm_id))

    def pause_taskmanager(self) -> None:
        """SIGSTOP to a driver or its host, for less or more time than detection takes."""
        for process in self._one_of(self.live_taskmanagers):
            longest_ms = self.random.choice((2_000, 6_000, 30_000))
            process.paused_until_ms = self.now_ms + self.random.randrange(longest_ms)
            process.threads_paused_too = self.random.random() < 0.5
            self.log(f"{process.name} pauses until {process.paused_until_ms / 1000}")

    def hang_taskmanager(self) -> None:
        """A turn of a TaskManager's main loop takes long, while its other threads continue."""
        for process in self._one_of(self.live_taskmanagers):
            longest_ms = self.random.choice((2_000, 6_000, 30_000))
            process.hangs_until_ms = self.now_ms + self.random.randrange(longest_ms)
            self.log(f"{process.name} hangs until {process.hangs_until_ms / 1000}")

    def silence_taskmanager(self) -> None:
        """A TaskManager's host is cut off from Kafka, for less or more time than is noticed."""
        for process in self._one_of(self.live_taskmanagers):
            longest_ms = self.random.choice((2_000, 6_000, 30_000))
            process.silence(self.now_ms + self.random.randrange(longest_ms))
            self.log(f"{process.name} is silent until {process.silent_until_ms / 1000}")

    def start_namesake(self) -> None:
        """An operator starts a TaskManager with an id that is already in use."""
        if self.random.random() < 0.3:
            for process in self._one_of(self.live_taskmanagers):
                self.start_taskmanager(process.tm_id)

    def crash_thread(self) -> None:
        """`kill -9` of a worker."""
        for thread in self._one_of(self._threads()):
            self.log(f"a thread {thread.number} dies")
            thread.die()

    def hang_thread(self) -> None:
        """A worker is busy with something that takes long."""
        for thread in self._one_of(self._threads()):
            thread.busy_until_ms = self.now_ms + self.random.randrange(60_000)
            self.log(f"a thread {thread.number} hangs until {thread.busy_until_ms / 1000}")

    def fail_task(self) -> None:
        """A record is rejected while `on_error` is `fail`."""
        if self.random.random() < 0.3:
            for thread in self._one_of(self._threads()):
                thread.fail_a_task()

    def fail_dependency(self) -> None:
        """A connection of a task breaks."""
        for thread in self._one_of(self._threads()):
            thread.fail_a_dependency()

    def hold_task(self) -> None:
        """A call of user code, or a commit, hangs."""
        for thread in self._one_of(self._threads()):
            thread.hold_a_task()

    def crash_jobmanager(self) -> None:
        """End a JobManager, by a clean shutdown or by `kill -9`."""
        for process in self._one_of(self.jobmanagers):
            process.end(self.now_ms, crash=self.random.random() < 0.5)
            self.later(20_000, self._replace_jobmanager)

    def edit_pipeline(self) -> None:
        """An operator changes a processor and restarts the JobManager."""
        self._edits += 1
        edited = self.random.choice(self.replicas).name
        self.log(f"{edited} is edited")
        self.replicas = [
            replace(replica, spec=structs.replace(replica.spec, max_task_idle_ms=self._edits))
            if replica.name == edited
            else replica
            for replica in self.replicas
        ]
        self.crash_jobmanager()

    def pause_jobmanager(self) -> None:
        """SIGSTOP to a JobManager."""
        for process in self._one_of(self.jobmanagers):
            process.paused_until_ms = self.now_ms + self.random.randrange(20_000)
            self.log(f"{process.name} pauses until {process.paused_until_ms / 1000}")

    def start_rival(self) -> None:
        """An operator starts a second JobManager."""
        if len(self.jobmanagers) < 3:
            self.start_jobmanager()

    def break_writes(self) -> None:
        """Kafka rejects most transactions for some seconds."""
        weather = self.broker.weather
        self.broker.weather = replace(weather, failed_write=0.8)
        self.log("Kafka takes hardly any transaction")

        def end() -> None:
            self.broker.weather = weather

        self.later(10_000, end)

    def take_kafka_away(self) -> None:
        """All brokers are out of reach for some seconds."""
        self.broker.away_until_ms = self.now_ms + self.random.randrange(20_000)
        self.log(f"Kafka is away until {self.broker.away_until_ms / 1000}")

    def _one_of(self, things: Iterable[T]) -> list[T]:
        everything = list(things)
        return [self.random.choice(everything)] if everything else []

    def _threads(self) -> list[FakePipelineThread]:
        return [
            thread
            for process in self.live_taskmanagers
            for thread in process.threads.values()
            if thread.is_connected
        ]

    def _replace(self, tm_id: int) -> None:
        if all(process.tm_id != tm_id for process in self.live_taskmanagers):
            self.start_taskmanager(tm_id)

    def _replace_jobmanager(self) -> None:
        if not any(process.alive for process in self.jobmanagers):
            self.start_jobmanager()
            if self.present is None and self.random.random() < 0.3:
                self.break_writes()

    def _keep(self, present: set[int]) -> None:
        for tm_id in present.difference([process.tm_id for process in self.live_taskmanagers]):
            self.start_taskmanager(tm_id)
        self._replace_jobmanager()

    def join(self, tm_id: int) -> None:
        """Start an additional TaskManager, which is kept running from now on."""
        assert self.present is not None
        self.present.add(tm_id)
        self.fault_ms = self.now_ms

    def leave(self, tm_id: int, *, crash: bool) -> None:
        """End a TaskManager for good, by a clean shutdown or by `kill -9`."""
        assert self.present is not None
        self.present.remove(tm_id)
        self.fault_ms = self.now_ms
        for process in self.live_taskmanagers:
            if process.tm_id == tm_id:
                self.log(f"{process.name} {'is killed' if crash else 'is told to stop'}")
                if crash:
                    process.crash(self.now_ms)
                else:
                    process.stop(self.now_ms)

    def mend(self, present: Iterable[int]) -> None:
        """End all faults; from now on, exactly the TaskManagers in `present` run."""
        self.present, self.fault_ms = set(present), self.now_ms
        self.log(f"all is mended; TaskManagers {self.present} are there")
        self.broker.calm_down()
        self._later = []
        processes: list[Process] = [*self.jobmanagers, *self.taskmanagers]
        for process in processes:
            process.paused_until_ms = 0
        for tm in self.live_taskmanagers:
            tm.hangs_until_ms = tm.silent_until_ms = tm.reads_again_ms = 0
            if tm.tm_id not in self.present:
                tm.crash(self.now_ms)
        for thread in self._threads():
            thread.mend(self.now_ms)

    def run_until_converged(self, within: int) -> None:
        """Let up to `within` heartbeat intervals pass until `check_converged` passes."""
        self.run(MISSED_BEATS + 1)  # The loss of earlier beats may be noticed this late.
        for _ in range(MISSED_BEATS + 1, within - 1):
            self.run(1)
            if self._complaint() is None:
                return
        self.run(1)
        self.check_converged()

    def check_converged(self) -> None:
        """Check that every task runs exactly once, where the JobManager wants it, in balance."""
        complaint = self._complaint()
        assert complaint is None, complaint

    def _complaint(self) -> str | None:
        """Return how the cluster differs from the state that it must reach, or None."""
        if [process.leads for process in self.jobmanagers] != [True]:
            return "there is not exactly one JobManager, and it leads"
        state = self.jobmanagers[0].state
        at = {process.tm_id: process for process in self.live_taskmanagers}
        present = at.keys() if self.present is None else self.present
        if len(at) < len(self.taskmanagers) or at.keys() != present:
            return "not exactly the TaskManagers are there that should be, or workers of others"
        if (
            any(process.stops for process in at.values())
            or self.jobmanagers[0].ledger.asked_back_ms
        ):
            return "a TaskManager or a task is on its way out"
        if state.live != {tm_id: process.name for tm_id, process in at.items()}:
            return "the JobManager does not know who is there"
        owned: dict[int | None, set[TaskId]] = defaultdict(set)
        for task, owner in state.owners.items():
            owned[owner].add(task)
        for process in at.values():
            running = {instance.task for instance in process.running}
            if not running == process.state.tasks.keys() == owned[process.tm_id]:
                return f"{process.name} does not run what the JobManager wants"
            for instance in process.running:
                if not self._is_well(instance):
                    return f"{instance.task} is {instance.state}, or fenced"
            stale = self._stale(process, self.jobmanagers[0])
            if stale:
                return f"{process.name} was not made to start {stale} again"
        counts = {tm_id: sum(not task.standby for task in owned[tm_id]) for tm_id in at}
        tasks = sum(counts.values())
        if tasks < len(self.active_tasks):
            return "not every task has an owner"
        if any(len({t.active for t in owned[tm_id]}) < len(owned[tm_id]) for tm_id in at):
            return "a standby is where its task is, or another copy of it"
        copies = sum(len(owned[tm_id]) for tm_id in at) - tasks
        if copies < tasks * min(self.scale.standbys, len(at) - 1):
            return f"there are only {copies} standbys"
        return None if self._is_balanced(counts) else f"out of balance: {counts}"

    def _is_well(self, instance: TaskInstance) -> bool:
        """Whether a task runs, or has FAILED for a reason of its own."""
        match instance.state:
            case TaskState.RUNNING:
                return self.fences.may_commit(instance)
            case state:
                return state in (TaskState.STANDBY, TaskState.FAILED)

    def _stale(self, process: TaskManagerProcess, leader: JobManagerProcess) -> list[TaskId]:
        """Return tasks of a version other than the JobManager's, or that failed before it began."""
        first_ms = leader.started_ms - LONGEST_DELAY_MS  # The report may be this much older.
        return [
            instance.task
            for instance in process.running
            if instance.fingerprint != leader.replicas[instance.task].fingerprint
            or process.failed_ms.get(instance.task, first_ms) < first_ms
        ]

    def _is_balanced(self, counts: Mapping[int, int]) -> bool:
        """Whether shares are within one task of what the numbers of threads require."""
        all_threads = sum(self.scale.threads[tm_id] for tm_id in counts)
        return all(
            abs(count - len(self.active_tasks) * self.scale.threads[tm_id] / all_threads) <= 1
            for tm_id, count in counts.items()
        )

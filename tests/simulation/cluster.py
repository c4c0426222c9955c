"""A whole cluster in one process: real cores, simulated Kafka, threads, clocks and mishaps."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from common.messages import replicas
from common.nodes import SINK, SOURCE, ProcessorNode, ProcessorType, TaskId, Topology
from common.status import TaskState
from tests.simulation.broker import CALM, NAMES, Broker, Weather
from tests.simulation.pipeline_thread import INTERVAL_MS, FakePipelineThread, Fences, Pace
from tests.simulation.processes import JobManagerProcess, Process, TaskManagerProcess

T = TypeVar("T")

STEP_MS = 250
TRACE_LINES = 400


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a cluster is."""

    threads: tuple[int, ...]
    """Of each TaskManager; their ids are the indexes."""
    processors: int
    parallelism: int

    @classmethod
    def draw(cls, random: Random) -> Scale:
        """Return a small one."""
        threads = tuple(random.randint(1, 3) for _ in range(random.randint(1, 4)))
        return cls(threads, random.randint(1, 3), random.randint(1, 4))


class Cluster:
    """Processes on one broker. `mishap` breaks something; `mend` ends all trouble."""

    def __init__(self, random: Random, scale: Scale, pace: Pace | None = None) -> None:
        nodes = tuple(
            ProcessorNode(f"P{n}", ProcessorType.FORWARD, (SINK,), (SOURCE,))
            for n in range(scale.processors)
        )
        self.random = random
        self.scale = scale
        self.now_ms = 0
        self.broker = Broker(random)
        self.fences = Fences()
        self.replicas = replicas(Topology(nodes), NAMES, scale.parallelism)
        self.jobmanagers: list[JobManagerProcess] = []
        self.taskmanagers: list[TaskManagerProcess] = []
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
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

    def run(self, intervals: int) -> None:
        """Let heartbeat intervals pass."""
        for _ in range(intervals * INTERVAL_MS // STEP_MS):
            self.step()

    def later(self, max_ms: int, action: Callable[[], object]) -> None:
        """Do something at a random time within `max_ms`, unless `mend` comes first."""
        self._later.append((self.now_ms + self.random.randrange(max_ms) + 1, action))

    def start_jobmanager(self) -> JobManagerProcess:
        """Start one more JobManager."""
        process = JobManagerProcess(
            self._name("jm"), self.broker, self.random, self.log, self.replicas, self.tm_number
        )
        self.log(f"{process.name} starts")
        self.jobmanagers.append(process)
        return process

    def start_taskmanager(self, tm_id: int) -> TaskManagerProcess:
        """Start a TaskManager, even if there is one with this id."""
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
        """How many TaskManagers `config.yaml` asks for."""
        return len(self.scale.threads)

    @property
    def tasks(self) -> list[TaskId]:
        """All tasks of the pipeline."""
        return [replica.task for replica in self.replicas]

    @property
    def live_taskmanagers(self) -> list[TaskManagerProcess]:
        """The TaskManagers whose driver is alive, be it paused."""
        return [process for process in self.taskmanagers if process.alive]

    @property
    def commands_sent(self) -> int:
        """How many commands and refusals the JobManagers that are alive have written."""
        return sum(process.commands_sent + process.refusals for process in self.jobmanagers)

    def mishap(self) -> None:
        """Break one thing at random, or let the operator do something to the cluster."""
        self.random.choice(
            (
                self.crash_taskmanager,
                self.stop_taskmanager,
                self.pause_taskmanager,
                self.start_namesake,
                self.crash_thread,
                self.hang_thread,
                self.fail_task,
                self.crash_jobmanager,
                self.pause_jobmanager,
                self.start_rival,
                self.break_writes,
            )
        )()

    def crash_taskmanager(self) -> None:
        """`kill -9` of a driver; somebody may start it again."""
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
        """SIGSTOP to a driver, for less or more than the detection takes, or to its host."""
        for process in self._one_of(self.live_taskmanagers):
            longest_ms = self.random.choice((2_000, 6_000, 30_000))
            process.paused_until_ms = self.now_ms + self.random.randrange(longest_ms)
            process.threads_paused_too = self.random.random() < 0.5
            self.log(f"{process.name} pauses until {process.paused_until_ms / 1000}")

    def start_namesake(self) -> None:
        """An operator starts a TaskManager with an id that is taken."""
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
            thread.busy_until_ms = self.now_ms + self.random.randrange(40_000)
            self.log(f"a thread {thread.number} hangs until {thread.busy_until_ms / 1000}")

    def fail_task(self) -> None:
        """A record is rejected while `on_error` is `fail`."""
        if self.random.random() < 0.3:
            for thread in self._one_of(self._threads()):
                thread.fail_a_task()

    def crash_jobmanager(self) -> None:
        """`kill -9` of a JobManager."""
        for process in self._one_of(self.jobmanagers):
            self.log(f"{process.name} is killed")
            process.alive = False
            self.later(20_000, self._replace_jobmanager)

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
        """Kafka takes hardly any transaction for some seconds."""
        weather = self.broker.weather
        self.broker.weather = Weather(
            weather.drop, weather.duplicate, weather.delay_ms, weather.slow_read, 0.8
        )
        self.log("Kafka takes hardly any transaction")

        def end() -> None:
            self.broker.weather = weather

        self.later(10_000, end)

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

    def mend(self, present: Iterable[int]) -> None:
        """End all trouble; of the TaskManagers, those `present` are there from now on."""
        present = set(present)
        self.log(f"all is mended; TaskManagers {present} are there")
        self.broker.weather = CALM
        self._later = []
        processes: list[Process] = [*self.jobmanagers, *self.taskmanagers]
        for process in processes:
            process.paused_until_ms = 0
        for tm in self.live_taskmanagers:
            if tm.tm_id not in present:
                tm.crash(self.now_ms)
        for thread in self._threads():
            thread.busy_until_ms = min(thread.busy_until_ms, self.now_ms + 2 * INTERVAL_MS)
        for tm_id in present:
            self._replace(tm_id)
        self._replace_jobmanager()

    def replace_the_missing(self, present: Iterable[int]) -> None:
        """Start those again that were on their way out, or superseded, when all was mended."""
        for tm_id in present:
            self._replace(tm_id)
        self._replace_jobmanager()

    def check_converged(self, present: set[int]) -> None:
        """Check that every task runs exactly once, where the JobManager wants it, in balance."""
        assert len(self.jobmanagers) == 1, "not exactly one JobManager is left"
        state = self.jobmanagers[0].state
        at = {process.tm_id: process for process in self.live_taskmanagers}
        assert sorted(process.tm_id for process in self.live_taskmanagers) == sorted(present)
        assert state.live == {tm_id: process.name for tm_id, process in at.items()}
        for task in self.tasks:
            hosts = [p for p in self.live_taskmanagers for t in p.running if t.task == task]
            assert len(hosts) == 1, f"{task} runs on {[host.name for host in hosts]}"
            host = hosts[0]
            assert state.owners[task] == host.tm_id, f"{task} is not where the JobManager thinks"
            assert task in host.state.tasks, f"{host.name} does not know that it runs {task}"
            instance = next(t for t in host.running if t.task == task)
            if instance.state is not TaskState.FAILED:
                assert instance.state is TaskState.RUNNING, f"{task} is {instance.state}"
                assert self.fences.holder.get(task) is instance, f"{task} is fenced"
        for process in self.live_taskmanagers:
            assert len(process.state.tasks) == len(process.running), f"{process.name} lists more"
        self.check_balance(present)

    def check_balance(self, present: set[int]) -> None:
        """Check that shares are within one of what the threads ask for."""
        counts = Counter(self.jobmanagers[0].state.owners.values())
        all_threads = sum(self.scale.threads[tm_id] for tm_id in present)
        for tm_id in present:
            fair = len(self.tasks) * self.scale.threads[tm_id] / all_threads
            assert abs(counts[tm_id] - fair) <= 1, f"{tm_id} has {counts[tm_id]} of {fair} tasks"

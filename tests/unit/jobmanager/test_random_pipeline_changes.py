"""Random changes of a pipeline while TaskManagers come, go and are slow, each run from a seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from kafka_pipeline.common.protocol.messages import (
    JobManagerBeat,
    Message,
    ProcessorReplica,
    Processors,
    Report,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager.events import (
    Echoed,
    Event,
    LeadershipBegan,
    PipelineChanged,
    Reported,
)
from kafka_pipeline.jobmanager.state import JobManagerState
from tests.seeds import parametrize
from tests.unit.jobmanager.changing import tasks

SEEDS = 300
NAMES = "PQRS"
INTERVAL_MS = 1000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, SEEDS // 6, SEEDS, SEEDS // 6)


@dataclass
class TaskManager:
    """A process that carries commands out in order, some time after they were sent."""

    tm_id: int
    incarnation: str
    inbox: list[Processors] = field(default_factory=list)
    runs: dict[TaskId, str] = field(default_factory=dict)
    closing: set[TaskId] = field(default_factory=set)
    failed: set[TaskId] = field(default_factory=set)
    epoch: int = -1
    sequence: int = 0
    beat: int = 0
    is_silent: bool = False

    def carry_out_next(self) -> None:
        command = self.inbox.pop(0)
        if command.epoch < self.epoch:
            return
        self.epoch, self.sequence = command.epoch, command.sequence
        self.closing |= {task for task in command.revoke if task in self.runs}
        for replica in command.assign:
            # One that it has, even if it is just being closed, is ignored.
            self.runs.setdefault(replica.task, replica.fingerprint)

    def close(self, task: TaskId) -> None:
        self.closing.discard(task)
        self.failed.discard(task)
        self.runs.pop(task, None)

    def report(self, *, leaving: bool = False) -> Report:
        self.beat += 1
        statuses = tuple(
            TaskStatus(
                task, TaskState.FAILED if task in self.failed else TaskState.RUNNING, "", 0, version
            )
            for task, version in self.runs.items()
        )
        return Report(
            self.tm_id,
            self.incarnation,
            1,
            self.beat,
            self.epoch,
            self.sequence,
            leaving,
            tasks=() if leaving else statuses,
        )


class Cluster:
    """A JobManager with some TaskManagers, to which things happen that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.tm_number = self.random.randrange(1, 5)
        self.partitions = self.random.randrange(1, 5)
        self.standbys = self.random.choice((0, 0, 1, 2))
        self.versions = {"P": 1}
        self.held: frozenset[str] = frozenset()
        self.now_ms = 0
        self.epoch = 0
        self.processes = 0
        self.live: dict[int, TaskManager] = {}
        self.wrong: list[str] = []
        self.commands = 0
        self.start_jobmanager()
        for tm_id in range(self.tm_number):
            self.start(tm_id)

    @property
    def pipeline(self) -> list[ProcessorReplica]:
        return tasks(self.partitions, self.standbys, **self.versions)

    def handle(self, event: Event) -> None:
        """Let the JobManager handle an event, and send its commands."""
        said: list[Message] = self.state.handle(event)
        for message in said:
            if isinstance(message, JobManagerBeat):
                self.state.handle(Echoed(message.number))
            elif isinstance(message, Processors):
                self.commands += 1
                self.check(message)
                process = self.live.get(message.tm_id)
                if process is not None and process.incarnation == message.incarnation:
                    process.inbox.append(message)

    def check(self, command: Processors) -> None:
        newest = {replica.task: replica for replica in self.pipeline}
        self.wrong += [
            f"{replica.task} is assigned: {what}"
            for replica in command.assign
            for is_wrong, what in (
                (replica.task.processor in self.held and self.state.is_settled, "it is held"),
                (replica != newest.get(replica.task), "it is not of this version"),
            )
            if is_wrong
        ]

    # What happens.

    def start_jobmanager(self) -> None:
        self.epoch += 10
        self.state = JobManagerState((), self.tm_number, INTERVAL_MS)
        self.change_pipeline()
        self.handle(Tick(self.now_ms))
        self.handle(LeadershipBegan(self.epoch))

    def change_pipeline(self) -> None:
        self.handle(PipelineChanged(self.pipeline, self.held))

    def start(self, tm_id: int) -> None:
        self.processes += 1
        self.live[tm_id] = TaskManager(tm_id, f"process {self.processes}")

    def tick(self) -> None:
        self.now_ms += self.random.choice((250, 500, INTERVAL_MS))
        self.handle(Tick(self.now_ms))

    def change(self) -> None:
        """Add, edit, remove, hold or release one or more processors, in one step."""
        for _ in range(self.random.choice((1, 1, 2, 3))):
            name = self.random.choice(NAMES)
            match self.random.choices(("edit", "remove", "hold", "release"), (4, 1, 2, 2))[0]:
                case "edit":
                    self.versions[name] = self.random.randrange(1, 6)
                case "remove":
                    self.versions.pop(name, None)
                case "hold":
                    self.held |= {name}
                case "release":
                    self.held = frozenset(self.random.sample(NAMES, self.random.randrange(2)))
        self.change_pipeline()

    def act(self, process: TaskManager) -> None:
        """Let a TaskManager do something, or have something happen to it."""
        random = self.random
        match random.choices(
            ("command", "close", "report", "silent", "fail", "crash", "leave"),
            (90, 60, 120, 3, 3, 1, 1),
        )[0]:
            case "command" if process.inbox:
                process.carry_out_next()
            case "close" if process.closing:
                process.close(random.choice(sorted(process.closing)))
            case "report" if not process.is_silent:
                self.handle(Reported(process.report()))
            case "silent":
                process.is_silent = not process.is_silent
            case "fail" if process.runs:
                process.failed.add(random.choice(sorted(process.runs)))
            case "crash":
                del self.live[process.tm_id]
            case "leave":
                del self.live[process.tm_id]
                self.handle(Reported(process.report(leaving=True)))

    def step(self) -> None:
        random = self.random
        for process in [*self.live.values()]:
            self.act(process)
        if random.random() < 0.5:
            self.tick()
        if random.random() < 0.1:
            self.change()
        if random.random() < 0.1:
            tm_id = random.randrange(self.tm_number)
            if tm_id not in self.live:
                self.start(tm_id)
        if random.random() < 0.01:
            self.start_jobmanager()

    # The end.

    def calm_down(self) -> None:
        """Let all that is under way be done, and nothing else happen."""
        if not self.live:
            self.start(0)
        quiet = 0
        for _ in range(300):
            before = self.commands
            self.now_ms += INTERVAL_MS
            self.handle(Tick(self.now_ms))
            for process in self.live.values():
                process.is_silent = False
                while process.inbox:
                    process.carry_out_next()
                for task in [*process.closing]:
                    process.close(task)
                self.handle(Reported(process.report()))
            quiet = quiet + 1 if self.commands == before else 0
            if quiet > 25:
                return
        self.wrong.append("the JobManager does not come to rest")

    def check_end(self) -> None:
        free = [each for each in self.pipeline if each.name not in self.held]
        newest = {each.task: each.fingerprint for each in free}
        runs = Counter(task for process in self.live.values() for task in process.runs)
        for task, count in runs.items():
            if task not in newest:
                self.wrong.append(f"{task} runs, but is held or removed")
            elif count > 1:
                self.wrong.append(f"{count} TaskManagers run {task}")
        copies = Counter(task.active for task in runs if task.standby)
        places = min(self.standbys, len(self.live) - 1)
        for task in newest:
            if not task.standby and (runs[task], copies[task]) != (1, places):
                self.wrong.append(f"{task} runs {runs[task]} times, with {copies[task]} copies")
        for process in self.live.values():
            self.wrong += [
                f"{task} runs in another version"
                for task, version in process.runs.items()
                if version != newest.get(task, version)
            ]
            if len({task.active for task in process.runs}) < len(process.runs):
                self.wrong.append(f"{process.tm_id} has a task and its copy")
        owners = {task: owner for task, owner in self.state.owners.items() if owner is not None}
        actual = {task: p.tm_id for p in self.live.values() for task in p.runs}
        if owners != actual:
            self.wrong.append("the JobManager's owners are not those who run the tasks")
        if left := self.state.running(self.held):
            self.wrong.append(f"{left} count as running")


def live(seed: int) -> Cluster:
    cluster = Cluster(seed)
    for _ in range(cluster.random.randrange(50, 250)):
        cluster.step()
    cluster.calm_down()
    cluster.check_end()
    return cluster


def test_each_free_task_runs_once_in_its_newest_version_and_no_other_runs(seeds: range) -> None:
    found = {seed: wrong for seed in seeds if (wrong := live(seed).wrong)}
    assert found == {}


def test_seeds_end_in_all_situations() -> None:
    clusters = [live(seed) for seed in range(110)]
    assert any(cluster.held & cluster.versions.keys() for cluster in clusters)
    assert any(cluster.versions.keys() - cluster.held for cluster in clusters)
    assert any(len(cluster.versions) == len(NAMES) for cluster in clusters)
    assert any(cluster.standbys and len(cluster.live) > 2 for cluster in clusters)
    assert any(task in p.failed for c in clusters for p in c.live.values() for task in p.runs)

"""A job whose heartbeats are made up: what the console shows of it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    OnError,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec, SumSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import Heartbeat, JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.board import Board, Tap
from kafka_pipeline.console.views.snapshot import Snapshot
from kafka_pipeline.deployment.desired_state import Deployed, PipelineVersion, Wish
from tests.small_config import small_config

START_MS = 1_795_000_000_000
BEAT_MS = 1000
RECORDS_PER_S = 240
COMMITS_PER_S = 8
GIVEN_OWNERS_S = 5
"""When the JobManager gives the tasks of a silent TaskManager to others, after it fell silent."""


def config(task_managers: int = 3, parallelism: int = 4) -> Config:
    return small_config(
        job_name="shop",
        tm_number=task_managers,
        parallelism=parallelism,
        source_topic="orders",
        sink_topic="orders_by_city",
        console_port=0,
    )


def processors() -> tuple[PipelineProcessor, ...]:
    """Two ways from the source to the sink, one of which has a store and dead letters."""
    return (
        PipelineProcessor("Clean", ForwardSpec(), ("Price", "Audit"), (SOURCE,)),
        PipelineProcessor(
            "Price", SumSpec(constant=1), ("Cities",), ("Clean",), OnError.DEAD_LETTER
        ),
        PipelineProcessor(
            "Cities", CountSpec(), (SINK,), ("Price",), stores=(LoggedStore("counts"),)
        ),
        PipelineProcessor("Audit", ForwardSpec(), (SINK,), ("Clean",)),
    )


def many_processors(count: int) -> tuple[PipelineProcessor, ...]:
    """Processors in one long row."""
    names = [f"Step{number:02}" for number in range(count)]
    ends = (SOURCE, *names, SINK)
    return tuple(
        PipelineProcessor(name, ForwardSpec(), (ends[n + 2],), (ends[n],))
        for n, name in enumerate(names)
    )


@dataclass
class SampleJob:
    """Makes the heartbeats of a job, second by second, and has a console read them.

    `states` has tasks that do not run, and `hosts` the names of hosts. The TaskManagers in `silent`
    send nothing any more; some seconds later, others get their tasks.
    """

    config: Config = field(default_factory=config)
    steps: Sequence[PipelineProcessor] = field(default_factory=processors)
    states: dict[TaskId, TaskStatus] = field(default_factory=dict)
    hosts: Sequence[str] = ("alpha", "beta", "gamma")
    silent: dict[int, int] = field(default_factory=dict)
    made_by: str = "ada@alpha"
    state_addresses: Sequence[str] = ("", "", "")
    """Where the TaskManagers answer queries of state; "" if they do not."""

    def __post_init__(self) -> None:
        names = self.config.topic_names
        self.pipeline = Pipeline(tuple(self.steps), names, self.config.parallelism)
        self.tasks = list(self.pipeline.tasks)
        self.second = 0
        self.codec = Codec(names)
        self.tap = Tap(self.config.tm_number + 1)
        version = PipelineVersion(3, self.pipeline, "", START_MS, self.made_by)
        self.tap.deployed = Deployed(version, Wish(version=3))
        self.board = Board(self.config, self.tap)

    def run(self, seconds: int) -> Snapshot:
        """Let time pass; return what the console knows then."""
        snapshot = None
        for _ in range(seconds):
            self.beat()
            snapshot = self.board.next_snapshot(self.now_ms)
        assert snapshot is not None
        return snapshot

    @property
    def now_ms(self) -> int:
        return START_MS + self.second * BEAT_MS

    def fall_silent(self, tm_id: int) -> None:
        self.silent[tm_id] = self.second

    def beat(self) -> None:
        """Put the heartbeats of the next second into the tap."""
        self.second += 1
        owners = {task: self.owner(task) for task in self.tasks}
        self._put(JobManagerBeat(7, self.now_ms, dict(owners)))
        for tm_id in range(self.config.tm_number):
            if tm_id not in self.silent:
                mine = tuple(self.status(task) for task, owner in owners.items() if owner == tm_id)
                self._put(Heartbeat(self._report(tm_id, mine)))

    def owner(self, task: TaskId) -> int:
        number = self.config.tm_number
        first = self.tasks.index(task) % number
        gone = self.silent.get(first)
        if gone is None or self.second - gone < GIVEN_OWNERS_S:
            return first
        others = [(first + step) % number for step in range(1, number)]
        return next(other for other in others if other not in self.silent)

    def status(self, task: TaskId) -> TaskStatus:
        """Return what its TaskManager reports of a task."""
        given = self.states.get(task)
        if given is not None:
            return given
        slowly = task.processor == "Price" and task.partition == 1
        rate = RECORDS_PER_S + 10 * task.partition
        done = (rate - 60 if slowly else rate) * self.second
        behind = 4000 + 60 * self.second if slowly else 0
        if task.processor == "Cities" and task.partition == 2:
            behind = max(20_000 - 90 * self.second, 0)
        figures = {"records_in": done, "records_out": done, "lag": behind}
        figures["transactions"] = COMMITS_PER_S * self.second
        if behind:
            figures["oldest_waiting_ms"] = behind * 5
        if task.processor == "Price":
            figures["dead_letters"] = self.second // 7
        thread = self.tasks.index(task) // self.config.tm_number % 2
        return TaskStatus(task, TaskState.RUNNING, thread=thread, figures=figures)

    def _report(self, tm_id: int, statuses: tuple[TaskStatus, ...]) -> Report:
        return Report(
            tm_id,
            f"process{tm_id}",
            threads=2,
            beat=self.second,
            epoch=7,
            sequence=1,
            host=self.hosts[tm_id % len(self.hosts)],
            pid=4000 + tm_id,
            thread_states=(ThreadState.RUNNING, ThreadState.RUNNING),
            tasks=statuses,
            state_address=self.state_addresses[tm_id % len(self.state_addresses)],
        )

    def _put(self, message: Heartbeat | JobManagerBeat) -> None:
        for record in self.codec.encode(message, self.now_ms):
            self.tap.put(replace(record, timestamp_ms=self.now_ms), self.now_ms)

"""What the control plane costs: placement, reports, and a heartbeat of a large cluster.

No Kafka and no Spark: the real codec and the real JobManager's core, in CPU time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    Message,
    Processors,
    Report,
    replicas,
)
from kafka_pipeline.common.protocol.signing import require_signed, signed
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.jobmanager.events import Echoed, LeadershipBegan, Reported
from kafka_pipeline.jobmanager.load_balancer import balance, place_standbys
from kafka_pipeline.jobmanager.state import JobManagerState

NAMES = TopicNames(None, "in", "out")
INTERVAL_MS = 1000
TICKS = 20
REPORT_TASKS = 500
KEY = ControlKey((b"k" * 64,))
REPORT_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of the cluster."""

    task_managers: int
    tasks: int
    processors: int

    @property
    def parallelism(self) -> int:
        """The number of tasks of each processor."""
        return self.tasks // self.processors

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that runs."""
        return Pipeline(
            tuple(
                PipelineProcessor(f"Processor{number}", ForwardSpec(), (SINK,), (SOURCE,))
                for number in range(self.processors)
            ),
            NAMES,
            self.parallelism,
        )


def say(what: str, cpu_s: float) -> None:
    """Print a figure."""
    print(f"{what}: {cpu_s * 1000:,.2f} ms", flush=True)


def cpu_s(action: Callable[[], object], rounds: int) -> float:
    """Return the CPU time of the quickest of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return min(times)


def status(task: TaskId, fingerprint: str, figure: int) -> TaskStatus:
    """Return the report of a busy task."""
    return TaskStatus(
        task,
        TaskState.RUNNING,
        thread=figure % 4,
        fingerprint=fingerprint,
        figures={
            "records_in": 10**6 + figure,
            "records_out": 10**6 + figure,
            "transactions": 10**4 + figure,
            "lag": figure % 1000,
            "oldest_waiting_ms": figure % 100,
        },
    )


def measure_placement(scale: Scale, rounds: int) -> None:
    """Measure the first placement, one with nothing to do, and those after a loss and a join."""
    tasks = [r.task for r in replicas(scale.pipeline)]
    threads = {tm_id: 1 + tm_id % 4 for tm_id in range(scale.task_managers)}
    fewer = {tm_id: count for tm_id, count in threads.items() if tm_id}
    placed = balance(tasks, threads, {})
    after = balance(tasks, fewer, placed)
    standbys = [task.copy(1) for task in tasks]
    say("placement, first", cpu_s(lambda: balance(tasks, threads, {}), rounds))
    say("placement, nothing to do", cpu_s(lambda: balance(tasks, threads, placed), rounds))
    say("placement, one is lost", cpu_s(lambda: balance(tasks, fewer, placed), rounds))
    say("placement, one joins", cpu_s(lambda: balance(tasks, threads, after), rounds))
    say(
        "placement of as many standbys",
        cpu_s(lambda: place_standbys(standbys, threads, {}, placed), rounds),
    )


def measure_report(rounds: int) -> None:
    """Encode and decode a full report, and one that reports a single closed task."""
    tasks = [status(TaskId(f"P{n // 20}", n % 20), "a1b2c3d4e5f6", n) for n in range(REPORT_TASKS)]
    states = (ThreadState.RUNNING,) * 4
    full = Report(1, "f00d", 4, 7, 1, 1, tasks=tuple(tasks), thread_states=states)
    change = replace(full, beat=8, base=7, tasks=(), closed=(tasks[0].task,))
    watcher, jobmanager = Codec(NAMES), Codec(NAMES, reads_figures=False)
    for name, report in (("full report", full), ("report of one change", change)):
        message = Heartbeat(report)
        (record,) = watcher.encode(message, 0)
        size = sum(len(value) for _, value in record.headers)
        times = rounds * REPORT_ROUNDS
        print(f"{name}, {REPORT_TASKS} tasks: {size:,} bytes")
        say("  encoded", cpu_s(partial(watcher.encode, message, 0), times))
        say("  decoded by the JobManager", cpu_s(partial(jobmanager.decode, record), times))
        say("  decoded with figures", cpu_s(partial(watcher.decode, record), times))
        say("  signed", cpu_s(partial(signed, record, KEY), times))
        proven = signed(record, KEY)
        say("  signature checked", cpu_s(partial(require_signed, proven, KEY), times))


class SimulatedCluster:
    """A JobManager's core, and TaskManagers that execute its commands at once."""

    def __init__(self, scale: Scale) -> None:
        tasks = replicas(scale.pipeline)
        self._codec = Codec(NAMES, reads_figures=False)
        self._state = JobManagerState(tasks, scale.task_managers, INTERVAL_MS)
        self._runs: dict[int, dict[TaskId, str]] = {n: {} for n in range(scale.task_managers)}
        self._sequences: dict[int, int] = {}
        self._now_ms = 0
        self._beat = 0
        self._base = 0
        self._state.handle(Tick(0))
        self._state.handle(LeadershipBegan(1))

    @property
    def is_settled(self) -> bool:
        """Whether every task has an owner."""
        return None not in self._state.owners.values()

    def reports(self, full: bool) -> list[ControlRecord]:
        """Return a report of each TaskManager: full ones, or with all tasks' new figures."""
        self._beat += 1
        if full:
            self._base = self._beat
        records = []
        for tm_id, runs in self._runs.items():
            report = Report(
                tm_id,
                f"{tm_id:012}",
                threads=4,
                beat=self._beat,
                epoch=1,
                sequence=self._sequences.get(tm_id, 0),
                thread_states=(ThreadState.RUNNING,) * 4,
                tasks=tuple(status(task, version, self._beat) for task, version in runs.items()),
                base=None if full else self._base,
            )
            records += self._codec.encode(Heartbeat(report), self._now_ms)
        return records

    def live_through(self, records: Sequence[ControlRecord]) -> list[Message]:
        """Give the JobManager the events of a heartbeat period; return its commands.

        The events are the reports, its ticks, and its own heartbeat, written and read back.
        """
        said: list[Message] = []
        for record in records:
            message = self._codec.decode(record)
            assert isinstance(message, Heartbeat)
            said += self._state.handle(Reported(message.report))
        newest = 0
        for _ in range(TICKS):
            self._now_ms += INTERVAL_MS // TICKS
            for message in self._state.handle(Tick(self._now_ms)):
                said.append(message)
                if isinstance(message, JobManagerBeat):
                    newest = message.number
                    for record in self._codec.encode(message, self._now_ms):
                        self._codec.decode(record)
        self._state.handle(Echoed(newest))
        return [message for message in said if not isinstance(message, JobManagerBeat)]

    def carry_out(self, commands: Sequence[Message]) -> None:
        """Execute commands."""
        for command in commands:
            if isinstance(command, Processors):
                self._sequences[command.tm_id] = command.sequence
                runs = self._runs[command.tm_id]
                runs.update((replica.task, replica.fingerprint) for replica in command.assign)
                for task in command.revoke:
                    del runs[task]


def measure_beat(scale: Scale, rounds: int) -> None:
    """Settle a cluster, then measure the JobManager's cost of a heartbeat of all TaskManagers."""
    cluster = SimulatedCluster(scale)
    commands: list[Message] = []
    while commands or not cluster.is_settled:
        commands = cluster.live_through(cluster.reports(full=True))
        cluster.carry_out(commands)
    for name, full in (("full reports", True), ("reports of new figures", False)):
        times, size = [], 0
        for _ in range(rounds):
            records = cluster.reports(full)
            size = sum(len(value) for record in records for _, value in record.headers)
            began = time.process_time()
            commands = cluster.live_through(records)
            times.append(time.process_time() - began)
            assert not commands, "nothing has changed"
        say(f"a heartbeat of all, {name} ({size / 1e6:.1f} MB)", min(times))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task-managers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--processors", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    scale = Scale(options.task_managers, options.tasks, options.processors)
    print(f"{scale.tasks:,} tasks, {scale.task_managers:,} TaskManagers; CPU time, the best round")
    measure_placement(scale, options.rounds)
    measure_report(options.rounds)
    measure_beat(scale, options.rounds)


if __name__ == "__main__":
    main()

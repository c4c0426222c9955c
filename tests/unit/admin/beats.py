"""Heartbeats of a small cluster, and what is printed of them."""

from __future__ import annotations

from rich.console import Console

from kafka_pipeline.admin import status
from kafka_pipeline.common.cluster.cluster_status import Beat, ClusterStatus, snapshot
from kafka_pipeline.common.protocol.messages import JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus, ThreadState
from kafka_pipeline.common.tasks import TaskId

NOW_MS = 1_000_000
INTERVAL_MS = 1000

FORWARD, COUNT = TaskId("Forward", 0), TaskId("Count", 0)


def report(
    tm_id: int,
    *tasks: TaskStatus,
    age_ms: int = 200,
    incarnation: str = "a",
    sequence: int = 1,
    leaving: bool = False,
    engine: str = "",
) -> Beat:
    content = Report(
        tm_id,
        incarnation,
        threads=2,
        beat=1,
        sequence=sequence,
        leaving=leaving,
        host=f"host{tm_id}",
        pid=100 + tm_id,
        thread_states=(ThreadState.RUNNING, ThreadState.DEAD),
        tasks=tasks,
        engine=engine,
    )
    return Beat(NOW_MS - age_ms, content)


def leader(
    owners: dict[TaskId, int | None], age_ms: int = 100, epoch: int = 7, *, leaving: bool = False
) -> Beat:
    return Beat(NOW_MS - age_ms, JobManagerBeat(epoch, NOW_MS - age_ms, owners, leaving))


def running(task: TaskId, **figures: int) -> TaskStatus:
    return TaskStatus(task, TaskState.RUNNING, figures=figures)


def look(*beats: Beat, tm_number: int = 2) -> ClusterStatus:
    return snapshot(beats, NOW_MS, INTERVAL_MS, tm_number)


def text(found: ClusterStatus, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(status.overview(found), crop=False)
    return capture.get()


def rows(found: ClusterStatus) -> list[str]:
    return [" ".join(line.split()) for line in text(found).splitlines()]

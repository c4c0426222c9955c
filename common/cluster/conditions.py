"""What a script may wait for a job to be, and what is still missing; values only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, Presence, TaskInfo
from kafka_pipeline.common.cluster.figures import NOT_REPORTED, by_processor, state_of
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.suggest import counted, listed


class Condition(StrEnum):
    """A state of a whole job."""

    RUNNING = "running"
    """All daemons are up, and all tasks that are not paused run: at least one does."""
    DRAINED = "drained"
    """The same, and every task has processed all that its topics have."""
    HELD = "held"
    """Nobody runs a task, and nobody is to: all of them are paused, or the job was drained."""
    STOPPED = "stopped"
    """No daemon is up."""


def missing(status: ClusterStatus, condition: Condition, tm_number: int) -> list[str]:
    """Return what keeps a condition from holding, each as a line; [] if it holds.

    `tm_number` is how many TaskManagers take part in the job.
    """
    match condition:
        case Condition.RUNNING:
            return [*_daemons(status, tm_number), *_not_running(status)]
        case Condition.DRAINED:
            found = [*_daemons(status, tm_number), *_not_running(status), *_held(status)]
            return found or [*_unread(status)]
        case Condition.HELD:
            return [*_job_manager(status), *_not_held(status)]
        case Condition.STOPPED:
            return [*_still_up(status)]


def failures(status: ClusterStatus) -> list[str]:
    """Return a line for each task that has FAILED, with its reason."""
    return [
        f"{info.task} is FAILED: {info.reason}"
        for info in status.tasks
        if info.status is not None and info.status.state is TaskState.FAILED
    ]


def _job_manager(status: ClusterStatus) -> Iterator[str]:
    presence = status.job_manager.presence
    if presence is not Presence.UP:
        yield f"the JobManager is {presence}"


def _daemons(status: ClusterStatus, tm_number: int) -> Iterator[str]:
    yield from _job_manager(status)
    for info in status.task_managers:
        if info.id < tm_number and not info.is_up:
            yield f"TaskManager {info.id} is {info.presence}"


def _not_running(status: ClusterStatus) -> Iterator[str]:
    if not status.tasks:
        yield "the job has no tasks"
    elif all(info.is_held for info in status.tasks):
        yield "all tasks are HELD"
    else:
        for name, its in by_processor(status).items():
            if not its.all_run:
                of = [info for info in status.tasks if info.task.processor == name]
                shown = [_shown(info) for info in of if not (info.is_held or _runs(info))]
                yield f"{name}: {its.running} of {counted(its.tasks, 'task')} run: {listed(shown)}"


def _runs(info: TaskInfo) -> bool:
    return info.status is not None and info.status.state is TaskState.RUNNING


def _shown(info: TaskInfo) -> str:
    """Return a task with its state; for one that nobody reports, with the reason of that."""
    state = state_of(info)
    if state == NOT_REPORTED:
        return f"{info.task} ({info.reason})"
    percent = info.restore_percent
    return f"{info.task} {state}{'' if percent is None else f' {percent} %'}"


def _held(status: ClusterStatus) -> Iterator[str]:
    held = [str(info.task) for info in status.tasks if info.is_held]
    if held:
        yield f"what waits for {listed(held)} is not known: HELD"


def _unread(status: ClusterStatus) -> Iterator[str]:
    unread = status.job_manager.unread
    for name, its in by_processor(status).items():
        of = [info for info in status.tasks if info.task.processor == name]
        shown = [_lag(info) for info in of if _lag(info)]
        if unread.get(name):
            shown.append(f"{unread[name]:,} in partitions that no task reads")
        if shown:
            total = "?" if its.lag is None else f"{its.lag:,}"
            yield f"{name} has {total} unread: {listed(shown)}"


def _lag(info: TaskInfo) -> str:
    """Return a task with the offsets that wait for it; "" if none do, by a figure of now."""
    age_ms = None if info.status is None else info.status.gauge("lag_age_ms")
    if info.lag is None:
        return f"{info.task} ?"
    if age_ms is not None:
        return f"{info.task} {info.lag:,} ({age_ms // 1000} s ago)"
    return f"{info.task} {info.lag:,}" if info.lag else ""


def _not_held(status: ClusterStatus) -> Iterator[str]:
    left: Sequence[str] = [_shown(info) for info in status.tasks if not info.is_held]
    if not status.tasks:
        yield "the job has no tasks"
    elif left:
        yield f"{counted(len(left), 'task')} to stop: {listed(left)}"


def _still_up(status: ClusterStatus) -> Iterator[str]:
    if status.job_manager.is_up:
        yield "the JobManager is UP"
    for info in status.managers_up:
        yield f"TaskManager {info.id} is UP"

"""Derives the state of the cluster from the last heartbeats; nothing here talks to a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_pipeline.common.protocol.messages import MISSED_BEATS, JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import (
    FIGURES,
    TaskState,
    TaskStatus,
    ThreadState,
    newest_record_ms,
)
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import as_json

HELD = "HELD"
"""Shown as the state of a task that must not run: its processor is paused, or awaits a change."""


class Presence(StrEnum):
    """Whether a daemon is UP, DOWN (fell silent), LEFT (it said so), or ABSENT (never seen).

    A daemon that fell silent before the oldest heartbeat that was read counts as ABSENT.
    """

    UP = "UP"
    DOWN = "DOWN"
    LEFT = "LEFT"
    ABSENT = "ABSENT"


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, and when the brokers received it, in ms since the epoch by their clock.

    A partial report lists only what changed since a full one. If that was not read, the TaskManager
    may run more tasks than the report lists.
    """

    sent_at_ms: int
    content: Report | JobManagerBeat


@dataclass(frozen=True, slots=True)
class JobManagerInfo:
    """The JobManager; all but `presence` is from its last heartbeat, if there was one."""

    presence: Presence
    epoch: int | None = None
    age_ms: int | None = None
    findings: tuple[str, ...] = ()
    """Sentences about what no longer suits the job, such as partitions that no task reads."""
    unread: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The number of records in partitions that no task reads, by the processor that should."""
    engine: str = ""
    """The version of the engine; "" if unknown: earlier versions do not report it."""

    @property
    def is_up(self) -> bool:
        """Whether it is UP."""
        return self.presence is Presence.UP


@dataclass(frozen=True, slots=True)
class TaskManagerInfo:
    """A TaskManager according to its last heartbeat, which is `age_ms` old."""

    id: int
    presence: Presence
    host: str = ""
    pid: int | None = None
    threads: tuple[ThreadState, ...] = ()
    age_ms: int | None = None
    code: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The fingerprints of the user's modules, by module."""
    state_address: str = ""
    """The host and port at which it answers queries of state; "" if it does not."""
    engine: str = ""
    """As in `JobManagerInfo`."""

    @property
    def is_up(self) -> bool:
        """Whether it is UP."""
        return self.presence is Presence.UP


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task, the owner that the JobManager names, and the status in the owner's last heartbeat.

    A task that must not run counts as owned while a TaskManager reports it.
    `status` is `None` if no TaskManager that is up has reported the task; `reason` then says why.
    Otherwise, `reason` is the reason for the state that the TaskManager gave.
    """

    task: TaskId
    owner: int | None
    status: TaskStatus | None
    reason: str
    is_held: bool = False
    """Whether the task must not run, and does not: its processor is paused, or awaits a change."""
    is_overdue: bool = False
    """Whether the owner still runs the task, although the JobManager no longer waits for its end.
    """

    @property
    def lag(self) -> int | None:
        """The number of unread offsets; `None` if unknown."""
        return None if self.status is None else self.status.gauge("lag")

    @property
    def restore_percent(self) -> int | None:
        """How much of the state is restored, in percent; `None` unless the task is restoring."""
        status = self.status
        to_restore = status.count("to_restore") if status is not None else 0
        if status is None or status.state is not TaskState.RESTORING or not to_restore:
            return None
        return 100 * status.count("restored") // to_restore


def unread_of(tasks: Iterable[TaskInfo]) -> int | None:
    """Return the sum of the tasks' lags; `None` if any lag is unknown, or without tasks."""
    lags = [info.lag for info in tasks]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if lags and len(known) == len(lags) else None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The state of the whole cluster at one moment, according to the heartbeats."""

    job_manager: JobManagerInfo
    task_managers: tuple[TaskManagerInfo, ...]
    tasks: tuple[TaskInfo, ...]
    standbys: tuple[TaskInfo, ...] = ()
    """Copies of tasks' state; see `num_standby_replicas`."""
    unsigned: tuple[str, ...] = ()
    """Why recent heartbeats were ignored: reasons such as a missing signature."""
    other_protocol: str = ""
    """Why a recent heartbeat was ignored, if an incompatible version of the engine wrote it."""

    @property
    def without_owner(self) -> tuple[TaskId, ...]:
        """The tasks that have no owner, without those that are held."""
        return tuple(info.task for info in self.tasks if info.owner is None and not info.is_held)

    @property
    def managers_up(self) -> list[TaskManagerInfo]:
        """The TaskManagers that are UP."""
        return [info for info in self.task_managers if info.is_up]

    @property
    def code(self) -> dict[int, Mapping[str, str]]:
        """The fingerprints of the user's modules in the TaskManagers that are up, by id."""
        return {info.id: info.code for info in self.managers_up}

    @property
    def engines(self) -> dict[str, list[str]]:
        """The versions of the engine that run, each with the managers that are up and run it.

        Managers are "JobManager" and "TaskManager 0". An unknown version is "".
        """
        found: dict[str, list[str]] = {}
        if self.job_manager.is_up:
            found[self.job_manager.engine] = ["JobManager"]
        for info in self.managers_up:
            found.setdefault(info.engine, []).append(f"TaskManager {info.id}")
        return found

    @property
    def newest_record_ms(self) -> int | None:
        """The largest timestamp that any task of the job has processed; `None` while unknown."""
        return newest_record_ms(info.status for info in self.tasks if info.status is not None)

    @property
    def all_run(self) -> bool:
        """Whether there are tasks, and each is RUNNING on its owner."""
        return bool(self.tasks) and all(
            info.owner is not None
            and info.status is not None
            and info.status.state is TaskState.RUNNING
            for info in self.tasks
        )

    @property
    def failed(self) -> tuple[TaskInfo, ...]:
        """The tasks that have FAILED."""
        return tuple(
            info
            for info in self.tasks
            if info.status is not None and info.status.state is TaskState.FAILED
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        manager, newest_ms = self.job_manager, self.newest_record_ms
        return {
            "job_manager": {
                "state": str(manager.presence),
                "epoch": manager.epoch,
                "age_ms": manager.age_ms,
                "findings": list(manager.findings),
                "unread": dict(manager.unread),
                "engine": manager.engine,
            },
            "task_managers": [
                {
                    "id": info.id,
                    "state": str(info.presence),
                    "host": info.host,
                    "pid": info.pid,
                    "threads": [str(state) for state in info.threads],
                    "age_ms": info.age_ms,
                    "code": dict(info.code),
                    "state_address": info.state_address,
                    "engine": info.engine,
                }
                for info in self.task_managers
            ],
            "tasks": [task_to_json(info, newest_ms) for info in self.tasks],
            "standbys": [task_to_json(info, newest_ms) for info in self.standbys],
            "tasks_without_owner": [str(task) for task in self.without_owner],
            "unsigned": list(self.unsigned),
            "other_protocol": self.other_protocol,
        }


def task_to_json(info: TaskInfo, newest_ms: int | None) -> dict[str, Any]:
    """Return a task with all its figures, as plain values for `json.dumps`.

    `newest_ms` is the largest timestamp that any task of the job has processed.
    """
    status = info.status
    return {
        "id": str(info.task),
        "owner": info.owner,
        "thread": status.thread if status else None,
        "state": str(status.state) if status else HELD if info.is_held else None,
        "reason": info.reason,
        "activity": status.activity if status else None,
        **{
            name: status.figures.get(name, missing) if status else None
            for name, missing in FIGURES.items()
        },
        "event_time_lag_ms": status.event_time_lag_ms(newest_ms) if status else None,
        "held_by": str(status.held_by) if status and status.held_by else None,
        "key_warnings": as_json(status.key_warnings) if status else None,
        "dropped": sum(status.dropped.values()) if status else None,
        "dropped_by_reason": dict(status.dropped) if status else None,
        "dropped_per_minute_by_reason": dict(status.dropped_lately) if status else None,
        "rejected_by_error": dict(status.rejected) if status else None,
        "restore_percent": info.restore_percent,
    }


def newest(beats: Iterable[Beat]) -> list[Beat]:
    """Return the last beat of each process.

    `beats` are in the order of their topic. To follow the topic, append further beats to the result
    and call this again.
    """
    last: dict[str, Beat] = {}
    for beat in beats:
        sender = _sender(beat.content)
        if sender not in last or not _is_outdated(beat.content, last[sender].content):
            last[sender] = beat
    return list(last.values())


def snapshot(beats: Iterable[Beat], now_ms: int, interval_ms: int, tm_number: int) -> ClusterStatus:
    """Return the state of the cluster at `now_ms`.

    `beats` are in the order of their topic, `interval_ms` is the time between two heartbeats, and
    `tm_number` is the number of TaskManagers in config.yaml.
    """
    overdue_ms = MISSED_BEATS * interval_ms
    last = newest(beats)
    leader = next(
        (beat for beat in reversed(last) if isinstance(beat.content, JobManagerBeat)), None
    )
    reports = _participants(last, now_ms, overdue_ms)
    managers = tuple(
        _task_manager(tm_id, reports.get(tm_id), now_ms, overdue_ms)
        for tm_id in sorted({*range(tm_number), *reports})
    )
    up = {info.id for info in managers if info.is_up}
    statuses = {
        (tm_id, status.task): status
        for tm_id, (_, report) in reports.items()
        if tm_id in up
        for status in report.tasks
    }
    incomplete = {tm_id for tm_id, (_, report) in reports.items() if report.base is not None}
    job_manager = _job_manager(leader, now_ms, overdue_ms)
    owners = _owners(leader, job_manager.presence, statuses)
    tasks = [
        _resting(task, up, statuses)
        if owner is None and _is_held(task, leader)
        else _task(task, owner, up, incomplete, statuses)
        for task, owner in owners.items()
    ]
    return ClusterStatus(
        job_manager,
        managers,
        tuple(info for info in tasks if not info.task.standby),
        tuple(info for info in tasks if info.task.standby),
    )


def _sender(content: Report | JobManagerBeat) -> str:
    if isinstance(content, JobManagerBeat):
        return "jobmanager"
    return f"{content.tm_id} {content.incarnation}"


def _is_outdated(content: Report | JobManagerBeat, former: Report | JobManagerBeat) -> bool:
    """Whether an old JobManager announces its stop after a newer one has begun to lead."""
    return (
        isinstance(content, JobManagerBeat)
        and isinstance(former, JobManagerBeat)
        and content.leaving
        and content.epoch < former.epoch
    )


def _participants(
    beats: Iterable[Beat], now_ms: int, overdue_ms: int
) -> dict[int, tuple[int, Report]]:
    """Return the last report of each TaskManager, by id, with the time at which it was sent.

    If two processes have the same id, the one that is up and has received commands counts: the
    JobManager refuses the other one.
    """
    chosen: dict[int, tuple[tuple[bool, bool, int], Beat]] = {}
    reports: dict[int, tuple[int, Report]] = {}
    for beat in beats:
        report = beat.content
        if isinstance(report, JobManagerBeat):
            continue
        is_there = not report.leaving and now_ms - beat.sent_at_ms <= overdue_ms
        rank = (is_there, is_there and report.sequence > 0, beat.sent_at_ms)
        if report.tm_id not in chosen or rank >= chosen[report.tm_id][0]:
            chosen[report.tm_id] = (rank, beat)
            reports[report.tm_id] = (beat.sent_at_ms, report)
    return reports


def _job_manager(beat: Beat | None, now_ms: int, overdue_ms: int) -> JobManagerInfo:
    if beat is None:
        return JobManagerInfo(Presence.ABSENT)
    assert isinstance(beat.content, JobManagerBeat)
    age_ms = max(now_ms - beat.sent_at_ms, 0)
    presence = Presence.UP if age_ms <= overdue_ms else Presence.DOWN
    if beat.content.leaving:
        presence = Presence.LEFT
    content = beat.content
    return JobManagerInfo(
        presence, content.epoch, age_ms, content.findings, content.unread, content.engine
    )


def _task_manager(
    tm_id: int, found: tuple[int, Report] | None, now_ms: int, overdue_ms: int
) -> TaskManagerInfo:
    if found is None:
        return TaskManagerInfo(tm_id, Presence.ABSENT)
    sent_at_ms, report = found
    age_ms = max(now_ms - sent_at_ms, 0)
    presence = Presence.UP if age_ms <= overdue_ms else Presence.DOWN
    if report.leaving:
        presence = Presence.LEFT
    return TaskManagerInfo(
        tm_id,
        presence,
        report.host,
        report.pid,
        report.thread_states,
        age_ms,
        report.code,
        report.state_address,
        report.engine,
    )


def _owners(
    leader: Beat | None,
    presence: Presence,
    statuses: Mapping[tuple[int, TaskId], TaskStatus],
) -> dict[TaskId, int | None]:
    """Return all tasks in order, with the owner that the JobManager names.

    The pipeline keeps running without a JobManager. A task's owner is then the TaskManager that
    reports it.
    """
    runners: dict[TaskId, int | None] = {task: tm_id for tm_id, task in sorted(statuses)}
    if leader is None:
        return dict(sorted(runners.items()))
    assert isinstance(leader.content, JobManagerBeat)
    if presence is Presence.UP:
        return dict(leader.content.owners)
    return {task: runners.get(task) for task in leader.content.owners}


def _is_held(task: TaskId, leader: Beat | None) -> bool:
    """Whether the task, or the task of which this is a copy, must not run."""
    if leader is None:
        return False
    assert isinstance(leader.content, JobManagerBeat)
    beat = leader.content
    return task.processor in beat.held or task.active in beat.held_tasks


def _resting(
    task: TaskId, up: set[int], statuses: Mapping[tuple[int, TaskId], TaskStatus]
) -> TaskInfo:
    """Return a task that must not run and has no owner: the former one may not have stopped it."""
    for tm_id in up:
        if (status := statuses.get((tm_id, task))) is not None:
            why = (
                f"TaskManager {tm_id} still runs it, although it should be {HELD}: it reads no "
                "commands, or a call of the task does not end"
            )
            return TaskInfo(task, tm_id, status, why, is_overdue=True)
    return TaskInfo(task, None, None, "", is_held=True)


def _task(
    task: TaskId,
    owner: int | None,
    up: set[int],
    incomplete: set[int],
    statuses: Mapping[tuple[int, TaskId], TaskStatus],
) -> TaskInfo:
    if owner is None:
        return TaskInfo(task, None, None, "no TaskManager runs it")
    if owner not in up:
        return TaskInfo(task, owner, None, "its TaskManager is not there")
    status = statuses.get((owner, task))
    if status is None and owner in incomplete:
        return TaskInfo(task, owner, None, "unknown until its TaskManager's next full report")
    if status is None:
        return TaskInfo(task, owner, None, "assigned, not started yet")
    return TaskInfo(task, owner, status, status.reason)

"""Derives events from consecutive states of the cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
    TaskManagerInfo,
)
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.views.snapshot import Event, EventKind
from kafka_pipeline.deployment.desired_state import Deployed

MOST_EVENTS = 500
_MOST_TASKS = 50

_FAILURES = {TaskState.FAILED: "failed", TaskState.RESTARTING: "had an error, and will start again"}


class History:
    """The latest events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._job_manager = JobManagerInfo(Presence.ABSENT)
        self._managers: dict[int, TaskManagerInfo] = {}
        self._owners: dict[TaskId, int] = {}
        self._states: dict[TaskId, TaskState] = {}
        self._deployed: Deployed | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """The latest events, oldest first."""
        return tuple(self._events)

    def look(self, now_ms: int, status: ClusterStatus, deployed: Deployed | None) -> None:
        """Compare with the state of the last call, and add an event for each difference."""
        self._events.extend(self._of_deployment(now_ms, deployed))
        self._events.extend(self._of_job_manager(now_ms, status.job_manager))
        for info in status.task_managers:
            self._events.extend(self._of_task_manager(now_ms, info))
        tasks = (*status.tasks, *status.standbys)
        self._events.extend(self._moves(now_ms, tasks))
        self._events.extend(self._failures(now_ms, tasks))

    def _of_job_manager(self, now_ms: int, info: JobManagerInfo) -> Iterator[Event]:
        former, self._job_manager = self._job_manager, info
        if info.epoch != former.epoch:
            text = f"the JobManager leads, with epoch {info.epoch}"
            yield Event(now_ms, EventKind.JOB_MANAGER, text)
        elif info.presence is former.presence:
            return
        elif info.is_up:
            text = "the JobManager's heartbeats come back from Kafka again"
            yield Event(now_ms, EventKind.JOB_MANAGER, text)
        else:
            text = "the JobManager's own heartbeats do not come back: it cannot reach Kafka"
            yield Event(now_ms, EventKind.JOB_MANAGER, text, needs_care=True)

    def _of_task_manager(self, now_ms: int, info: TaskManagerInfo) -> Iterator[Event]:
        former = self._managers.get(info.id)
        self._managers[info.id] = info
        is_same = former is not None and (former.host, former.pid) == (info.host, info.pid)
        if former is not None and is_same and former.presence is info.presence:
            return
        name = f"TaskManager {info.id}"
        if info.is_up:
            verb = "joined" if former is None or former.pid is None else "is back"
            text = f"{name} {verb}: process {info.pid} on {info.host}"
            yield Event(now_ms, EventKind.TASK_MANAGER, text)
        elif info.presence is Presence.LEFT:
            yield Event(now_ms, EventKind.TASK_MANAGER, f"{name} was stopped")
        elif info.presence is Presence.DOWN:
            yield Event(now_ms, EventKind.TASK_MANAGER, f"{name} fell silent", needs_care=True)

    def _moves(self, now_ms: int, tasks: Iterable[TaskInfo]) -> Iterator[Event]:
        former, self._owners = self._owners, {}
        moved: dict[tuple[int | None, int], list[TaskId]] = {}
        for info in tasks:
            last = former.get(info.task)
            owner = last if info.owner is None else info.owner
            if owner is not None:
                self._owners[info.task] = owner
                if owner != last:
                    moved.setdefault((last, owner), []).append(info.task)
        for (source, target), ids in moved.items():
            verb = "began on" if source is None else f"moved from TaskManager {source} to"
            text = f"{counted(len(ids), 'task')} {verb} TaskManager {target}"
            yield _event(now_ms, EventKind.MOVE, text, ids)

    def _failures(self, now_ms: int, tasks: Iterable[TaskInfo]) -> Iterator[Event]:
        former, self._states = self._states, {}
        failed: dict[tuple[TaskState, str], list[TaskId]] = {}
        for info in tasks:
            if info.status is None:
                continue
            state = self._states[info.task] = info.status.state
            if state in _FAILURES and former.get(info.task) is not state:
                failed.setdefault((state, info.reason), []).append(info.task)
        for (state, reason), ids in failed.items():
            text = f"{counted(len(ids), 'task')} {_FAILURES[state]}"
            yield _event(now_ms, EventKind.FAILURE, text, ids, reason, needs_care=True)

    def _of_deployment(self, now_ms: int, deployed: Deployed | None) -> Iterator[Event]:
        former, self._deployed = self._deployed, deployed
        if deployed is None or deployed == former:
            return
        for text in _changes(former, deployed):
            yield Event(now_ms, EventKind.DEPLOYMENT, text)


def _event(
    at_ms: int,
    kind: EventKind,
    text: str,
    tasks: list[TaskId],
    reason: str = "",
    *,
    needs_care: bool = False,
) -> Event:
    shown = tuple(sorted(tasks)[:_MOST_TASKS])
    return Event(at_ms, kind, text, reason, shown, len(tasks), needs_care)


def _changes(former: Deployed | None, now: Deployed) -> Iterator[str]:
    """Yield a sentence for each request and each change of version."""
    version, wish = now.version, now.wish
    if former is None or former.version.number != version.number:
        yield f"version {version.number} of the pipeline runs, made by {version.made_by}"
    if former is None:
        return
    before = former.wish
    if wish.next is not None and wish.next != before.next:
        yield f"a change to version {wish.next} began"
    paused = {*wish.paused, *wish.paused_tasks}
    was_paused = {*before.paused, *before.paused_tasks}
    if paused - was_paused:
        yield f"paused: {', '.join(sorted(paused - was_paused))}"
    if was_paused - paused:
        yield f"resumed: {', '.join(sorted(was_paused - paused))}"
    if wish.drains is not before.drains:
        yield "the pipeline is drained" if wish.drains else "the pipeline is not drained any more"
    again = [id_ for id_, times in wish.restarts.items() if before.restarts.get(id_, 0) < times]
    if again:
        yield f"restarted on request: {', '.join(sorted(again))}"

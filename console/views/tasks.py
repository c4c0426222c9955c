"""The map of tasks over TaskManagers and their threads."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.cluster_status import Presence, TaskInfo, TaskManagerInfo
from kafka_pipeline.common.figures import state_of
from kafka_pipeline.common.status import TaskState
from kafka_pipeline.console.snapshot import Snapshot


def tasks(snapshot: Snapshot) -> dict[str, Any]:
    """Return the TaskManagers with the tasks of each thread, and the tasks that nobody owns."""
    status = snapshot.status
    owned: dict[int | None, list[TaskInfo]] = {}
    for info in (*status.tasks, *status.standbys):
        owned.setdefault(info.owner, []).append(info)
    return {
        "task_managers": [
            _task_manager(manager, owned.get(manager.id, [])) for manager in status.task_managers
        ],
        "without_owner": [_task(info) for info in owned.get(None, [])],
        "failures": [
            _task(info)
            for info in (*status.tasks, *status.standbys)
            if info.status and info.status.state in (TaskState.FAILED, TaskState.RESTARTING)
        ],
    }


def _task_manager(manager: TaskManagerInfo, owned: list[TaskInfo]) -> dict[str, Any]:
    of_thread: dict[int | None, list[TaskInfo]] = {}
    for info in owned:
        of_thread.setdefault(info.status.thread if info.status else None, []).append(info)
    threads = manager.threads if manager.presence is Presence.UP else ()
    numbers = {*range(len(threads)), *of_thread} - {None}
    return {
        "id": manager.id,
        "state": str(manager.presence),
        "host": manager.host,
        "pid": manager.pid,
        "age_ms": manager.age_ms,
        "threads": [
            {
                "number": number,
                "state": str(threads[number]) if number < len(threads) else None,
                "tasks": [_task(info) for info in of_thread.get(number, [])],
            }
            for number in sorted(number for number in numbers if number is not None)
        ],
        "not_reported": [_task(info) for info in of_thread.get(None, [])],
    }


def _task(info: TaskInfo) -> dict[str, Any]:
    return {
        "id": str(info.task),
        "processor": info.task.processor,
        "is_standby": info.task.standby > 0,
        "owner": info.owner,
        "state": state_of(info),
        "reason": info.reason,
        "activity": info.status.activity if info.status else "",
    }

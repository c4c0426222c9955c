"""Finds a place for every task and standby."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager.load_balancer import balance, place_standbys
from kafka_pipeline.jobmanager.ownership import LiveTaskManager, OwnedTask


def place(
    tasks: Mapping[TaskId, OwnedTask],
    managers: Mapping[int, LiveTaskManager],
) -> dict[TaskId, int]:
    """Return the TaskManager for each task, and for each standby that has a place."""
    standbys = [task_id for task_id in tasks if task_id.standby]
    threads = {tm_id: manager.threads for tm_id, manager in managers.items()}
    homes = {}
    for task_id, task in tasks.items():
        # A task that waits to be moved stays with its owner if its target is gone.
        is_lost = task.home not in threads and task.owner is not None
        home = task.owner if is_lost else task.home
        if home is not None:
            homes[task_id] = home
    copies: dict[TaskId, list[int]] = {}
    for standby in standbys:
        owner = tasks[standby].owner
        if owner is not None:
            copies.setdefault(standby.active, []).append(owner)
    active = [task_id for task_id in tasks if not task_id.standby]
    targets = balance(active, threads, homes, copies)
    return targets | place_standbys(standbys, threads, homes, targets)

"""What is on its way: restores, starts, standbys and moves."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.cluster_status import TaskInfo
from kafka_pipeline.common.figures import state_of
from kafka_pipeline.common.status import TaskState
from kafka_pipeline.console.snapshot import EventKind, Snapshot
from kafka_pipeline.console.views.history import event_to_json

_MOST_MOVES = 20


def moves(snapshot: Snapshot) -> dict[str, Any]:
    """Return the tasks that restore their state or start, all standbys, and the latest moves."""
    status = snapshot.status
    everyone = (*status.tasks, *status.standbys)
    latest = [event for event in snapshot.events if event.kind is EventKind.MOVE][-_MOST_MOVES:]
    return {
        "restoring": [_restore(info) for info in everyone if state_of(info) == TaskState.RESTORING],
        "starting": [
            _place(info)
            for info in status.tasks
            if info.status is None
            or info.status.state in (TaskState.STARTING, TaskState.RESTARTING)
        ],
        "standbys": [_standby(info) for info in status.standbys],
        "moves": [event_to_json(event) for event in reversed(latest)],
    }


def _place(info: TaskInfo) -> dict[str, Any]:
    return {
        "id": str(info.task),
        "processor": info.task.processor,
        "owner": info.owner,
        "state": state_of(info),
        "reason": info.reason,
    }


def _restore(info: TaskInfo) -> dict[str, Any]:
    assert info.status is not None
    return {
        **_place(info),
        "restored": info.status.count("restored"),
        "to_restore": info.status.count("to_restore"),
        "percent": info.restore_percent,
        "eta_s": info.status.gauge("restore_eta_s"),
    }


def _standby(info: TaskInfo) -> dict[str, Any]:
    return {
        **_place(info),
        "of": str(info.task.active),
        "state_records": info.status.count("records_in") if info.status else None,
        "lag": info.lag,
    }

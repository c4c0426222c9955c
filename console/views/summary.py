"""The line above all pages: who is up, what runs, and what needs care."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.cluster_status import Presence
from kafka_pipeline.console.snapshot import Snapshot
from kafka_pipeline.console.views.figures import figures_of


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """Return the state of the job as a whole."""
    status = snapshot.status
    figures = figures_of(snapshot, status.tasks)
    return {
        "number": snapshot.number,
        "at_ms": snapshot.at_ms,
        "job_name": snapshot.job_name,
        "job_manager": {
            "state": str(status.job_manager.presence),
            "epoch": status.job_manager.epoch,
            "age_ms": status.job_manager.age_ms,
            "findings": list(status.job_manager.findings),
        },
        "task_managers": {
            "up": sum(info.presence is Presence.UP for info in status.task_managers),
            "expected": len(status.task_managers),
        },
        "tasks": {"count": figures["tasks"], "states": figures["states"]},
        "lag": figures["lag"],
        "oldest_waiting_ms": figures["oldest_waiting_ms"],
        "deployment": _deployment(snapshot),
    }


def _deployment(snapshot: Snapshot) -> dict[str, Any] | None:
    if snapshot.deployed is None:
        return None
    version, wish = snapshot.deployed.version, snapshot.deployed.wish
    return {
        "version": version.number,
        "made_at_ms": version.made_at_ms,
        "made_by": version.made_by,
        "next": wish.next,
        "paused": [*wish.paused, *wish.paused_tasks],
        "drains": wish.drains,
        "stop": wish.stop and {"purpose": wish.stop.purpose, "by": wish.stop.by},
    }

"""The transactions of each task: how many, how often, and when the last one was."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.cluster_status import TaskInfo
from kafka_pipeline.common.figures import state_of
from kafka_pipeline.common.rates import Rates
from kafka_pipeline.console.snapshot import Snapshot
from kafka_pipeline.console.views.figures import rounded


def transactions(snapshot: Snapshot) -> dict[str, Any]:
    """Return the commits of each task, and its restarts.

    `last_commit_age_ms` is since the heartbeat that reported a new transaction; null if none has
    come since the console began to look at the task where it runs now.
    """
    return {
        "tasks": [
            _task(snapshot, info, snapshot.rates.get(info.task, Rates()))
            for info in snapshot.status.tasks
        ]
    }


def _task(snapshot: Snapshot, info: TaskInfo, rates: Rates) -> dict[str, Any]:
    status = info.status
    at_ms = rates.committed_at_ms
    per_commit = None
    if rates.transactions and rates.records_in is not None:
        per_commit = round(rates.records_in / rates.transactions, 1)
    return {
        "id": str(info.task),
        "processor": info.task.processor,
        "owner": info.owner,
        "state": state_of(info),
        "transactions": status.count("transactions") if status else None,
        "per_s": rounded(rates.transactions),
        "records_per_transaction": per_commit,
        "last_commit_age_ms": None if at_ms is None else max(snapshot.at_ms - at_ms, 0),
        "lag": status.gauge("lag") if status else None,
        "restarts": status.count("restarts") if status else None,
        "reason": info.reason,
    }

"""The lag of each task in records and seconds, and when it will have caught up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_pipeline.common.cluster_status import TaskInfo
from kafka_pipeline.common.figures import state_of
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.common.rates import Rates
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.snapshot import Snapshot
from kafka_pipeline.console.views.figures import rounded

_STEADY_SHARE = 0.01
"""A lag that changes by less than this share in a minute is steady."""
_MINUTE_S = 60


def lag(snapshot: Snapshot) -> dict[str, Any]:
    """Return the lag of each task, with the partitions that it reads.

    A task that reads several partitions has one lag for all of them.
    """
    pipeline = snapshot.pipeline
    topics = {each.id: pipeline.in_topics(each) for each in pipeline.processors} if pipeline else {}
    return {
        "tasks": [
            {
                "id": str(info.task),
                "processor": info.task.processor,
                "partitions": _partitions(pipeline, topics.get(info.task.processor, ()), info.task),
                "state": state_of(info),
                **_figures(info),
                **forecast(info.lag, snapshot.rates.get(info.task, Rates()).lag),
            }
            for info in snapshot.status.tasks
        ]
    }


def forecast(lag: int | None, change: float | None) -> dict[str, Any]:
    """Return what becomes of a lag that changes by so much per second.

    `trend` is `done` (there is no lag), `unknown`, `steady`, `growing` or `shrinking`; only the
    last one has an `eta_s`, the seconds until the lag is 0.
    """
    found: dict[str, Any] = {"change_per_s": rounded(change)}
    if lag == 0:
        return found | {"trend": "done", "eta_s": None}
    if lag is None or change is None:
        return found | {"trend": "unknown", "eta_s": None}
    if abs(change) * _MINUTE_S < max(lag * _STEADY_SHARE, 1):
        return found | {"trend": "steady", "eta_s": None}
    if change > 0:
        return found | {"trend": "growing", "eta_s": None}
    return found | {"trend": "shrinking", "eta_s": round(lag / -change)}


def _partitions(pipeline: Pipeline | None, topics: Iterable[str], task: TaskId) -> list[str]:
    """Return the partitions of topics that a task reads."""
    number = task.partition
    return [
        f"{topic}[{number}]"
        for topic in topics
        if pipeline is not None and number < pipeline.partitions_of(topic)
    ]


def _figures(info: TaskInfo) -> dict[str, int | None]:
    names = ("lag", "lag_age_ms", "oldest_waiting_ms")
    return {name: info.status.gauge(name) if info.status else None for name in names}

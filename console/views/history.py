"""The latest events, and rates over time."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.console.snapshot import Event, Snapshot
from kafka_pipeline.console.views.figures import rounded


def history(snapshot: Snapshot) -> dict[str, Any]:
    """Return the latest events, the newest first."""
    return {"events": [event_to_json(event) for event in reversed(snapshot.events)]}


def rates(snapshot: Snapshot) -> dict[str, Any]:
    """Return records per second and lag of each processor over time; null is unknown."""
    pipeline, samples = snapshot.pipeline, snapshot.samples
    return {
        "times_ms": [sample.at_ms for sample in samples],
        "processors": {
            each.id: {
                "rate_in": [rounded(sample.records_in.get(each.id), 1) for sample in samples],
                "lag": [sample.lag.get(each.id) for sample in samples],
            }
            for each in (pipeline.processors if pipeline else ())
        },
    }


def event_to_json(event: Event) -> dict[str, Any]:
    """Return plain values for `json.dumps`."""
    return {
        "at_ms": event.at_ms,
        "kind": str(event.kind),
        "text": event.text,
        "reason": event.reason,
        "tasks": [str(task) for task in event.tasks],
        "task_count": event.task_count,
        "needs_care": event.needs_care,
    }

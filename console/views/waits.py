"""Which tasks hold others back in event time."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.waits import waits
from kafka_pipeline.console.snapshot import Snapshot


def waits_of(snapshot: Snapshot, processor: str | None = None) -> list[dict[str, Any]]:
    """Return who waits for whom, of one processor or of all."""
    return [
        {
            "processor": wait.tasks[0].processor,
            "tasks": [str(task) for task in wait.tasks],
            "is_whole": wait.is_whole,
            "event_time_ms": wait.time_ms,
            "holder": str(wait.holder),
            "holder_processor": wait.holder.processor,
            "holder_state": wait.state,
            "unread": wait.unread,
        }
        for wait in waits(snapshot.status)
        if processor is None or wait.tasks[0].processor == processor
    ]

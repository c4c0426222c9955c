"""One processor with all its tasks."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.cluster_status import task_to_json
from kafka_pipeline.common.rates import Rates
from kafka_pipeline.console.snapshot import Snapshot
from kafka_pipeline.console.views.figures import figures_of, rounded, tasks_of
from kafka_pipeline.console.views.waits import waits_of


def processor(snapshot: Snapshot, id_: str) -> dict[str, Any] | None:
    """Return a processor, its topics and its tasks; None if the pipeline does not have it."""
    pipeline = snapshot.pipeline
    found = [each for each in pipeline.processors if each.id == id_] if pipeline else []
    if pipeline is None or not found:
        return None
    (described,) = found
    tasks, newest_ms = tasks_of(snapshot, id_), snapshot.status.newest_record_ms
    return {
        "id": id_,
        "type": described.spec.type,
        "on_error": str(described.on_error),
        "reads": list(pipeline.read_topics(described)),
        "writes": list(pipeline.out_topics(described)),
        "state_topics": list(pipeline.state_topics(described).values()),
        "dead_letter_topic": pipeline.dead_letter_topic(described),
        "figures": figures_of(snapshot, tasks),
        "waits": waits_of(snapshot, id_),
        "tasks": [
            {**task_to_json(info, newest_ms), **_rates(snapshot.rates.get(info.task, Rates()))}
            for info in tasks
        ],
    }


def _rates(rates: Rates) -> dict[str, float | None]:
    return {"rate_in": rounded(rates.records_in), "rate_out": rounded(rates.records_out)}

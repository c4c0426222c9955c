"""The topics of the pipeline that runs, and what can be chosen to read their records."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.console.snapshot import Snapshot
from kafka_pipeline.streams import serdes


def topics(snapshot: Snapshot) -> dict[str, Any]:
    """Return the topics with records and state, and the names of serdes."""
    pipeline = snapshot.pipeline
    found = pipeline.data_topics(1) if pipeline else ()
    kinds = _kinds(pipeline) if pipeline else {}
    return {
        "topics": [
            {"name": spec.name, "kind": kinds[spec.name], "partitions": spec.partitions}
            for spec in found
        ],
        "serdes": list(serdes.NAMES),
    }


def _kinds(pipeline: Pipeline) -> dict[str, str]:
    dead = [pipeline.dead_letter_topic(each) for each in pipeline.processors]
    state = [
        topic for each in pipeline.processors for topic in pipeline.state_topics(each).values()
    ]
    written = [topic for each in pipeline.processors for topic in pipeline.out_topics(each)]
    read = [topic for each in pipeline.processors for topic in pipeline.read_topics(each)]
    return {
        **dict.fromkeys(written, "sink"),
        **dict.fromkeys(read, "source"),
        **dict.fromkeys(pipeline.arcs, "arc"),
        **dict.fromkeys(state, "state"),
        **dict.fromkeys((topic for topic in dead if topic), "dead letters"),
    }

"""The topics whose keys do not meet those of other topics, by processor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_pipeline.common.cluster_status import TaskInfo
from kafka_pipeline.common.key_warnings import KeyProblem, KeyWarning


def unmet_keys(tasks: Iterable[TaskInfo]) -> Mapping[str, Sequence[KeyWarning]]:
    """Return the warnings of each processor that has some: one for a topic and a problem."""
    found: dict[str, dict[tuple[str, KeyProblem], KeyWarning]] = {}
    for info in tasks:
        for warning in () if info.status is None else info.status.key_warnings:
            of_processor = found.setdefault(info.task.processor, {})
            of_processor.setdefault((warning.topic, warning.problem), warning)
    return {processor: list(warnings.values()) for processor, warnings in found.items()}

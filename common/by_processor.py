"""What the tasks of each processor report: records left out, and keys that do not meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_pipeline.common.cluster_status import TaskInfo
from kafka_pipeline.common.key_warnings import KeyProblem, KeyWarning


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many records the tasks of a processor left out for a reason, of all times and lately."""

    processor: str
    reason: str
    records: int
    per_minute: int


def left_out(tasks: Iterable[TaskInfo]) -> list[LeftOut]:
    """Return what each processor left out, in the order of the tasks, the most frequent first."""
    records: dict[str, Counter[str]] = {}
    lately: Counter[tuple[str, str]] = Counter()
    for info in tasks:
        status, processor = info.status, info.task.processor
        if status is not None:
            records.setdefault(processor, Counter()).update(status.dropped)
            for reason, count in status.dropped_lately.items():
                lately[processor, reason] += count
    return [
        LeftOut(processor, reason, count, lately[processor, reason])
        for processor, counts in records.items()
        for reason, count in counts.most_common()
    ]


def unmet_keys(tasks: Iterable[TaskInfo]) -> Mapping[str, Sequence[KeyWarning]]:
    """Return the warnings of processors whose keys do not meet: one for a topic and a problem."""
    found: dict[str, dict[tuple[str, KeyProblem], KeyWarning]] = {}
    for info in tasks:
        for warning in () if info.status is None else info.status.key_warnings:
            of_processor = found.setdefault(info.task.processor, {})
            of_processor.setdefault((warning.topic, warning.problem), warning)
    return {processor: list(warnings.values()) for processor, warnings in found.items()}

"""The records that processors leave out of their results, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kafka_pipeline.common.cluster_status import TaskInfo


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

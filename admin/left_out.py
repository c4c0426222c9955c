"""What processors leave out of their results, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from kafka_pipeline.common.by_processor import LeftOut, left_out
from kafka_pipeline.common.cluster_status import ClusterStatus
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.status import TaskStatus
from kafka_pipeline.common.suggest import counted


def lines(status: ClusterStatus) -> list[Text]:
    """Return a line for each processor that left records out of its results, with the reasons."""
    by_processor: dict[str, list[LeftOut]] = {}
    for each in left_out(status.tasks):
        by_processor.setdefault(each.processor, []).append(each)
    lines = []
    for processor, found in by_processor.items():
        counts = ", ".join(
            f"{each.reason} {_with_lately(each.records, each.per_minute)}" for each in found
        )
        total = counted(sum(each.records for each in found), "record")
        style = "yellow" if any(each.per_minute for each in found) else ""
        about = f" left {total} out of its results: {counts}"
        lines.append(Text.assemble((processor, f"bold {style}"), (printable(about, LAYOUT), style)))
    return lines


def in_all(statuses: Iterable[TaskStatus]) -> str:
    """Return how many records tasks left out, with those of the last minute; "" if none."""
    total = lately = 0
    for status in statuses:
        total += sum(status.dropped.values())
        lately += sum(status.dropped_lately.values())
    return _with_lately(total, lately) if total else ""


def _with_lately(records: int, per_minute: int) -> str:
    return f"{records:,} (+{per_minute:,}/min)" if per_minute else f"{records:,}"

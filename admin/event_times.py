"""Event time for a terminal: how far each processor is, and which tasks wait for others."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.tables import duration, make_table
from kafka_pipeline.common.cluster_status import ClusterStatus
from kafka_pipeline.common.moments import shown_moment
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.waits import Wait, lag_together, time_together, waits

NAMED_TASKS = 5
_LATE = "late"


def named(tasks: Iterable[TaskId]) -> str:
    """Return the names of the first tasks, and how many more there are."""
    names = [str(task) for task in tasks]
    others = len(names) - NAMED_TASKS
    more = f" and {others:,} more" if others > 0 else ""
    return f"{', '.join(names[:NAMED_TASKS])}{more}"


def lines(status: ClusterStatus) -> list[Text]:
    """Return a line for each task that holds others back in event time."""
    return [_line(wait) for wait in waits(status)]


def _line(wait: Wait) -> Text:
    name = wait.tasks[0].processor if wait.is_whole else named(wait.tasks)
    verb = "waits" if wait.is_whole or len(wait.tasks) == 1 else "wait"
    at = "" if wait.time_ms is None else f" at {shown_moment(wait.time_ms)}"
    unread = "unread unknown" if wait.unread is None else f"{wait.unread:,} unread"
    about = f" {verb}{at} for {wait.holder} ({wait.state}, {unread})"
    return Text.assemble((name, "bold yellow"), (printable(about, LAYOUT), "yellow"))


def table(status: ClusterStatus) -> Table | None:
    """Return how far each processor is in event time; `None` if that is not known of any."""
    by_processor: dict[str, list[TaskStatus]] = {}
    for info in status.tasks:
        found = by_processor.setdefault(info.task.processor, [])
        if info.status is not None:
            found.append(info.status)
    newest_ms, rows = status.newest_record_ms, []
    for processor, statuses in by_processor.items():
        time_ms = time_together(statuses)
        if time_ms is not None:
            lag_ms = lag_together(statuses, newest_ms)
            behind = "" if lag_ms is None else duration(lag_ms)
            cells = (processor, shown_moment(time_ms), behind, late(statuses))
            rows.append(tuple(map(Text, cells)))
    if not rows:
        return None
    headers = ("processor", "event time", "behind", _LATE)
    numbers = ("behind", _LATE)
    return make_table(
        "Event time", headers, rows, {"processor"}, numbers=numbers, optional=(_LATE,)
    )


def late(statuses: Iterable[TaskStatus]) -> str:
    """Return how many records were too late, with those of the last minute."""
    counts = [(each.count("late"), each.count("late_per_minute")) for each in statuses]
    total, latest = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if not total:
        return ""
    return f"{total:,} (+{latest:,}/min)" if latest else f"{total:,}"

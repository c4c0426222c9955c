"""What `pipeline status` and `pipeline top` say in words about the tasks of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.text import Text

from kafka_pipeline.common.clock import shown_moment
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.figures import Figures
from kafka_pipeline.common.cluster.waits import Wait, waits
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.suggest import counted, listed
from kafka_pipeline.common.tasks import TaskId


def remarks(status: ClusterStatus, figures: Mapping[str, Figures]) -> list[Text]:
    """Return lines: reasons, who waits for whom, what was left out, keys that do not meet others.

    `figures` are those of each processor.
    """
    return [
        *notes(status),
        *map(_wait, waits(status)),
        *(_left_out(name, its) for name, its in figures.items() if its.left_out),
        *(
            _line(f"{name}: ", warning.text, "yellow")
            for name, its in figures.items()
            for warning in its.key_warnings
        ),
    ]


def notes(status: ClusterStatus) -> list[Text]:
    """Return a line for each reason or activity, with the tasks that have it.

    Tasks that no TaskManager runs are left out.
    """
    names: dict[str, list[TaskId]] = {}
    for info in (*status.tasks, *status.standbys):
        activity = info.status.activity if info.status is not None else ""
        for note in filter(None, (info.reason, activity)):
            if info.owner is not None:
                names.setdefault(note, []).append(info.task)
    return [_line(f"{_named(tasks)}: ", note, "") for note, tasks in names.items()]


def findings(status: ClusterStatus) -> list[Text]:
    """Return a line for each finding of the JobManager."""
    return [Text(printable(each, LAYOUT), "red") for each in status.job_manager.findings]


def with_lately(total: int, per_minute: int) -> str:
    """Return a count, with that of the last minute if it is not 0."""
    return f"{total:,} (+{per_minute:,}/min)" if per_minute else f"{total:,}"


def _wait(wait: Wait) -> Text:
    name = wait.tasks[0].processor if wait.is_whole else _named(wait.tasks)
    verb = "waits" if wait.is_whole or len(wait.tasks) == 1 else "wait"
    at = "" if wait.time_ms is None else f" at {shown_moment(wait.time_ms)}"
    unread = "unread unknown" if wait.unread is None else f"{wait.unread:,} unread"
    return _line(name, f" {verb}{at} for {wait.holder} ({wait.state}, {unread})", "yellow")


def _left_out(processor: str, figures: Figures) -> Text:
    found = figures.left_out
    reasons = (f"{each.reason} {with_lately(each.records, each.per_minute)}" for each in found)
    total = counted(sum(each.records for each in found), "record")
    style = "yellow" if any(each.per_minute for each in found) else ""
    return _line(processor, f" left {total} out of its results: {', '.join(reasons)}", style)


def _line(subject: str, about: str, style: str) -> Text:
    return Text.assemble((subject, f"bold {style}"), (printable(about, LAYOUT), style))


def _named(tasks: Iterable[TaskId]) -> str:
    return listed([str(task) for task in tasks])

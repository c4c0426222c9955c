"""`pipeline status`: who is there and how the tasks do."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from admin.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
    TaskManagerInfo,
)
from admin.cluster_watcher import ClusterWatcher
from common.config import Config
from common.nodes import TaskId
from common.status import TaskState

_COLORS: Mapping[str, str] = {
    Presence.UP: "green",
    Presence.DOWN: "red",
    TaskState.RUNNING: "green",
    TaskState.STANDBY: "green",
    TaskState.STARTING: "yellow",
    TaskState.RESTORING: "yellow",
    TaskState.FAILED: "red",
}


def read_status(config: Config) -> ClusterStatus:
    """Return the status of a pipeline.

    Blocks for up to 1.5 heartbeat intervals, 3.5 if nobody sends heartbeats any more; before
    that until the brokers have answered, a moment as a rule and 75 s at most. Raises
    `UnavailableError` if they do not.
    """
    watcher = ClusterWatcher(config)
    try:
        watcher.read_until_fresh()
        return watcher.status()
    finally:
        watcher.close()


def as_json(status: ClusterStatus) -> str:
    """Return the status as a JSON text for programs."""
    return json.dumps(status.to_json(), indent=2)


def overview(status: ClusterStatus) -> RenderableType:
    """Return what a terminal shows of the status."""
    parts: list[RenderableType] = [
        job_manager_line(status.job_manager),
        "",
        task_managers_table(status),
    ]
    if status.tasks:
        parts += ["", tasks_table(status)]
    if status.standbys:
        parts += ["", standbys_table(status)]
    if status.without_owner:
        names = ", ".join(str(task) for task in status.without_owner)
        parts += ["", Text(f"Nobody runs {names}", style="red")]
    return Group(*parts)


def job_manager_line(info: JobManagerInfo) -> Text:
    """Return one line about the JobManager."""
    if info.presence is Presence.ABSENT:
        return Text("no JobManager", style="red")
    if info.presence is Presence.DOWN:
        return Text(
            f"no JobManager: the last one, of epoch {info.epoch}, fell silent {_age(info.age_ms)} "
            "ago. What runs goes on; nothing is moved.",
            style="red",
        )
    return Text(f"JobManager: epoch {info.epoch}, last heartbeat {_age(info.age_ms)} ago")


def task_managers_table(status: ClusterStatus) -> Table:
    """Return a table of the TaskManagers."""
    table = _table("TaskManagers", "id", "state", "host", "pid", "threads", "last heartbeat")
    for info in status.task_managers:
        table.add_row(
            str(info.id),
            _colored(info.presence),
            Text(info.host),
            "" if info.pid is None else str(info.pid),
            _threads(info) if info.presence is Presence.UP else "",
            "" if info.age_ms is None else f"{_age(info.age_ms)} ago",
        )
    return table


def tasks_table(status: ClusterStatus, rates: Mapping[TaskId, float] | None = None) -> Table:
    """Return a table of the tasks; `rates`, in records per second, add a column."""
    numbers = ["in", "out", "dead letters", "skipped", "lag"]
    if rates is not None:
        numbers.append("records/s")
    table = Table(
        Column("task", overflow="fold"),
        "owner",
        "thread",
        "state",
        *(Column(name, justify="right") for name in numbers),
        Column("reason", overflow="fold"),
        title="Tasks",
        title_justify="left",
    )
    for info in status.tasks:
        cells = _numbers(info)
        if rates is not None:
            cells.append(f"{rates[info.task]:,.0f}" if info.task in rates else "")
        owner = "" if info.owner is None else str(info.owner)
        thread = "" if info.status is None else str(info.status.thread)
        table.add_row(str(info.task), owner, thread, _state(info), *cells, Text(info.reason))
    return table


def standbys_table(status: ClusterStatus) -> Table:
    """Return a table of the copies of tasks' state."""
    table = _table("Standbys", "copy", "owner", "thread", "state", "state records", "lag", "reason")
    for info in status.standbys:
        found = info.status
        table.add_row(
            str(info.task),
            "" if info.owner is None else str(info.owner),
            "" if found is None else str(found.thread),
            _state(info),
            "" if found is None else f"{found.records_in:,}",
            "" if found is None or found.lag is None else f"{found.lag:,}",
            Text(info.reason),
        )
    return table


def _numbers(info: TaskInfo) -> list[str]:
    status = info.status
    if status is None:
        return [""] * 5
    counts = (status.records_in, status.records_out, status.dead_letters, status.skipped)
    lag = "" if status.lag is None else f"{status.lag:,}"
    return [*(f"{count:,}" for count in counts), lag]


def _state(info: TaskInfo) -> Text:
    if info.status is None:
        return Text("-")
    text = _colored(info.status.state)
    if info.restore_percent is not None:
        text.append(f" {info.restore_percent}%")
        if info.status.restore_eta_s is not None:
            text.append(f", {info.status.restore_eta_s} s left")
    return text


def _threads(info: TaskManagerInfo) -> str:
    """Return the states of the threads with their counts, such as `2 RUNNING, 1 DEAD`."""
    counts = {str(state): info.threads.count(state) for state in dict.fromkeys(info.threads)}
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _colored(word: str) -> Text:
    return Text(str(word), style=_COLORS.get(word, ""))


def _age(age_ms: int | None) -> str:
    return f"{(age_ms or 0) / 1000:.1f} s"


def _table(title: str, *headers: str) -> Table:
    return Table(
        *(Column(header, overflow="fold") for header in headers),
        title=title,
        title_justify="left",
    )

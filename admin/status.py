"""The status of a running pipeline: which daemons are up and how the tasks are doing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.remarks import findings, remarks, with_lately
from kafka_pipeline.admin.tables import colored, duration, make_table
from kafka_pipeline.admin.terminal import Harmless
from kafka_pipeline.common.clock import shown_moment
from kafka_pipeline.common.cluster.cluster_status import (
    HELD,
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
    TaskManagerInfo,
)
from kafka_pipeline.common.cluster.code_versions import differing, versions_line
from kafka_pipeline.common.cluster.figures import Figures, by_processor
from kafka_pipeline.common.cluster.rates import Rates
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

_REFRESH_S = 0.5
_LATE = "late"
_OLDEST = "oldest"
_RESTARTS = "restarts"

_PLACE = ("task", "owner", "thread", "state")


def watch_status(config: Config, view: Callable[[ClusterStatus], RenderableType]) -> None:
    """Show a view of the status on the terminal and keep it up to date, until Ctrl-C.

    Raises as `read_status`.
    """
    watcher = ClusterWatcher(config)
    try:
        watcher.read_until_fresh()
        first = Harmless(view(watcher.status()))
        with Live(first, auto_refresh=False, screen=True) as live:
            while True:
                watcher.read(_REFRESH_S)
                live.update(Harmless(view(watcher.status())), refresh=True)
    except KeyboardInterrupt:
        return
    finally:
        watcher.close()


def as_json(status: ClusterStatus) -> str:
    """Return the status as JSON, for programs."""
    return json.dumps(status.to_json(), indent=2)


def overview(status: ClusterStatus) -> RenderableType:
    """Return the status in the form shown on a terminal."""
    parts: list[RenderableType] = [
        job_manager_line(status.job_manager),
        "",
        task_managers_table(status),
    ]
    if status.tasks:
        parts += ["", tasks_table(status)]
    if status.standbys:
        parts += ["", standbys_table(status)]
    figures = by_processor(status)
    if (table := _event_times(figures)) is not None:
        parts += ["", table]
    for found in (remarks(status, figures), findings(status)):
        if found:
            parts += ["", *found]
    for why in filter(None, (*status.unsigned, status.other_protocol)):
        parts += ["", Text(f"Heartbeats are rejected: {why}", style="red")]
    if len(status.engines) > 1:
        parts += ["", Text(_engines_line(status.engines), "yellow")]
    code = differing(status.code)
    if code:
        parts.append("")
    for module, versions in code.items():
        said = f"{versions_line(module, versions)}: restart those with the old"
        parts.append(Text(printable(said, LAYOUT), "yellow"))
    if status.without_owner:
        names = ", ".join(str(task) for task in status.without_owner)
        parts += ["", Text(f"No TaskManager runs {names}", style="red")]
    return Group(*parts)


def _engines_line(engines: Mapping[str, list[str]]) -> str:
    versions = "; ".join(
        f"{version or 'an earlier version'}: {', '.join(managers)}"
        for version, managers in engines.items()
    )
    return printable(f"The managers run different versions of the engine ({versions})", LAYOUT)


def job_manager_line(info: JobManagerInfo) -> Text:
    """Return one line about the JobManager."""
    if info.presence is Presence.ABSENT:
        return Text("no JobManager", style="red")
    if not info.is_up:
        ended = "was stopped" if info.presence is Presence.LEFT else "fell silent"
        return Text(
            f"no JobManager: the last one, of epoch {info.epoch}, {ended} {_age(info.age_ms)} ago. "
            "What runs goes on; nothing is moved.",
            style="red",
        )
    return Text(f"JobManager: epoch {info.epoch}, last heartbeat {_age(info.age_ms)} ago")


def task_managers_table(status: ClusterStatus) -> Table:
    """Return a table of the TaskManagers."""
    rows = [
        (
            Text(str(info.id)),
            colored(info.presence),
            Text(printable(info.host)),
            Text("" if info.pid is None else str(info.pid)),
            Text(_threads(info) if info.is_up else ""),
            Text("" if info.age_ms is None else f"{_age(info.age_ms)} ago"),
        )
        for info in status.task_managers
    ]
    headers = ("id", "state", "host", "pid", "threads", "last\nheartbeat")
    return make_table("TaskManagers", headers, rows, folded={"host"})


def tasks_table(status: ClusterStatus, rates: Mapping[TaskId, Rates] | None = None) -> Table:
    """Return a table of the tasks; `rates` add a column."""
    numbers = ["in", "out", "dead\nletters", "skipped", _RESTARTS, "lag", _OLDEST]
    if rates is not None:
        numbers.append("records/s")
    rows = []
    for info in status.tasks:
        cells = _numbers(info)
        if rates is not None:
            rate = rates.get(info.task, Rates()).records_in
            cells.append("" if rate is None else f"{rate:,.0f}")
        rows.append((*_place(info), *map(Text, cells)))
    return make_table(
        "Tasks",
        (*_PLACE, *numbers),
        rows,
        folded={"task"},
        numbers=numbers,
        optional=(_OLDEST, _RESTARTS),
    )


def standbys_table(status: ClusterStatus) -> Table:
    """Return a table of the copies of tasks' state."""
    numbers = ("state\nrecords", "lag")
    rows = []
    for info in status.standbys:
        found = info.status
        cells = ("", "") if found is None else (f"{found.count('records_in'):,}", _lag(found))
        rows.append((*_place(info), *map(Text, cells)))
    return make_table("Standbys", (*_PLACE, *numbers), rows, folded={"task"}, numbers=numbers)


def _event_times(figures: Mapping[str, Figures]) -> Table | None:
    """Return how far each processor is in event time; `None` if that is not known of any."""
    rows = []
    for processor, its in figures.items():
        if its.event_time_ms is not None:
            late, lately = its.counts["late"], its.counts["late_per_minute"]
            behind = "" if its.behind_ms is None else duration(its.behind_ms)
            shown = with_lately(late, lately) if late else ""
            cells = (processor, shown_moment(its.event_time_ms), behind, shown)
            rows.append(tuple(map(Text, cells)))
    if not rows:
        return None
    numbers = ("behind", _LATE)
    headers = ("processor", "event time", *numbers)
    return make_table("Event time", headers, rows, {"processor"}, numbers, optional=(_LATE,))


def _place(info: TaskInfo) -> tuple[Text, ...]:
    """Return the cells under `_PLACE`."""
    owner = "" if info.owner is None else str(info.owner)
    thread = "" if info.status is None else str(info.status.thread)
    return Text(str(info.task)), Text(owner), Text(thread), state_of(info)


def _numbers(info: TaskInfo) -> list[str]:
    status = info.status
    if status is None:
        return ["", "", "", "", "", _lag(None), ""]
    read, out, skipped = map(status.count, ("records_in", "records_out", "skipped"))
    restarts = status.count("restarts")
    oldest_ms = status.gauge("oldest_waiting_ms")
    oldest = "" if oldest_ms is None else duration(oldest_ms)
    shown = f"{restarts:,}" if restarts else ""
    letters = with_lately(status.count("dead_letters"), status.count("dead_letters_per_minute"))
    return [f"{read:,}", f"{out:,}", letters, f"{skipped:,}", shown, _lag(status), oldest]


def _lag(status: TaskStatus | None) -> str:
    """Return the lag, with its age if the figure is old; `?` if it is not known."""
    lag = None if status is None else status.gauge("lag")
    if status is None or lag is None:
        return "?"
    age_ms = status.gauge("lag_age_ms")
    return f"{lag:,}" if age_ms is None else f"{lag:,} ({duration(age_ms)} ago)"


def state_of(info: TaskInfo) -> Text:
    """Return the state of a task, with what is left of a restore."""
    if info.status is None:
        return Text(HELD, style="yellow") if info.is_held else Text("-")
    text = colored(info.status.state)
    if info.restore_percent is not None:
        text.append(f" {info.restore_percent}%")
        eta_s = info.status.gauge("restore_eta_s")
        if eta_s is not None:
            text.append(f", {eta_s} s left")
    return text


def _threads(info: TaskManagerInfo) -> str:
    """Return the states of the threads with their counts, such as `2 RUNNING, 1 DEAD`."""
    counts = {str(state): info.threads.count(state) for state in dict.fromkeys(info.threads)}
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _age(age_ms: int | None) -> str:
    return f"{(age_ms or 0) / 1000:.1f} s"

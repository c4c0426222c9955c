"""The status of a running pipeline: which daemons are up and how the tasks are doing."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from admin.cluster_watcher import ClusterWatcher
from common.cluster_status import (
    HELD,
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
    TaskManagerInfo,
)
from common.config import Config
from common.status import TaskState, TaskStatus
from common.tasks import TaskId

_FOLDED_WIDTH = 4

_NAMED_TASKS = 5
_REFRESH_S = 0.5
_OLDEST = "oldest"
_RESTARTS = "restarts"

_PLACE = ("task", "owner", "thread", "state")

_COLORS: Mapping[str, str] = {
    Presence.UP: "green",
    Presence.DOWN: "red",
    TaskState.RUNNING: "green",
    TaskState.STANDBY: "green",
    TaskState.STARTING: "yellow",
    TaskState.RESTARTING: "yellow",
    TaskState.RESTORING: "yellow",
    TaskState.FAILED: "red",
}


def read_status(config: Config) -> ClusterStatus:
    """Return the status of a pipeline.

    Blocks until the brokers have answered, usually a moment and 75 s at most, and then for up to
    1.5 heartbeat intervals, or 3.5 if no daemon sends heartbeats any more. Raises
    `UnavailableError` if the brokers do not answer.
    """
    watcher = ClusterWatcher(config)
    try:
        watcher.read_until_fresh()
        return watcher.status()
    finally:
        watcher.close()


def watch_status(config: Config) -> None:
    """Show the status on the terminal and keep it up to date, until Ctrl-C.

    Raises as `read_status`.
    """
    watcher = ClusterWatcher(config)
    try:
        watcher.read_until_fresh()
        with Live(overview(watcher.status()), auto_refresh=False, screen=True) as live:
            while True:
                watcher.read(_REFRESH_S)
                live.update(overview(watcher.status()), refresh=True)
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
    if found := notes(status):
        parts += ["", *found]
    if status.without_owner:
        names = ", ".join(str(task) for task in status.without_owner)
        parts += ["", Text(f"No TaskManager runs {names}", style="red")]
    return Group(*parts)


def job_manager_line(info: JobManagerInfo) -> Text:
    """Return one line about the JobManager."""
    if info.presence is Presence.ABSENT:
        return Text("no JobManager", style="red")
    if info.presence is not Presence.UP:
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
            _colored(info.presence),
            Text(info.host),
            Text("" if info.pid is None else str(info.pid)),
            Text(_threads(info) if info.presence is Presence.UP else ""),
            Text("" if info.age_ms is None else f"{_age(info.age_ms)} ago"),
        )
        for info in status.task_managers
    ]
    headers = ("id", "state", "host", "pid", "threads", "last\nheartbeat")
    return _table("TaskManagers", headers, rows, folded={"host"})


def tasks_table(status: ClusterStatus, rates: Mapping[TaskId, float] | None = None) -> Table:
    """Return a table of the tasks; `rates`, in records per second, add a column."""
    numbers = ["in", "out", "dead\nletters", "skipped", _RESTARTS, "lag", _OLDEST]
    if rates is not None:
        numbers.append("records/s")
    rows = []
    for info in status.tasks:
        cells = _numbers(info)
        if rates is not None:
            cells.append(f"{rates[info.task]:,.0f}" if info.task in rates else "")
        rows.append((*_place(info), *map(Text, cells)))
    return _table("Tasks", (*_PLACE, *numbers), rows, folded={"task"}, numbers=numbers)


def standbys_table(status: ClusterStatus) -> Table:
    """Return a table of the copies of tasks' state."""
    numbers = ("state\nrecords", "lag")
    rows = []
    for info in status.standbys:
        found = info.status
        cells = ("", "") if found is None else (f"{found.count('records_in'):,}", _lag(found))
        rows.append((*_place(info), *map(Text, cells)))
    return _table("Standbys", (*_PLACE, *numbers), rows, folded={"task"}, numbers=numbers)


def notes(status: ClusterStatus) -> list[Text]:
    """Return a line for each reason or activity, with the tasks that have it.

    Tasks that no TaskManager runs are left out.
    """
    names: dict[str, list[str]] = {}
    for info in (*status.tasks, *status.standbys):
        activity = info.status.activity if info.status is not None else ""
        for note in filter(None, (info.reason, activity)):
            if info.owner is not None:
                names.setdefault(note, []).append(str(info.task))
    lines = []
    for note, tasks in names.items():
        others = len(tasks) - _NAMED_TASKS
        more = f" and {others:,} more" if others > 0 else ""
        named = ", ".join(tasks[:_NAMED_TASKS])
        lines.append(Text.assemble((f"{named}{more}: ", "bold"), note))
    return lines


def _place(info: TaskInfo) -> tuple[Text, ...]:
    """Return the cells under `_PLACE`."""
    owner = "" if info.owner is None else str(info.owner)
    thread = "" if info.status is None else str(info.status.thread)
    return Text(str(info.task)), Text(owner), Text(thread), _state(info)


def _numbers(info: TaskInfo) -> list[str]:
    status = info.status
    if status is None:
        return [""] * 7
    read, out, skipped = map(status.count, ("records_in", "records_out", "skipped"))
    restarts = status.count("restarts")
    oldest_ms = status.gauge("oldest_waiting_ms")
    oldest = "" if oldest_ms is None else _duration(oldest_ms)
    shown = f"{restarts:,}" if restarts else ""
    return [f"{read:,}", f"{out:,}", _letters(status), f"{skipped:,}", shown, _lag(status), oldest]


def _letters(status: TaskStatus) -> str:
    """Return the dead letters, with those of the last minute if there are any."""
    total, latest = status.count("dead_letters"), status.count("dead_letters_per_minute")
    return f"{total:,} (+{latest:,}/min)" if latest else f"{total:,}"


def _lag(status: TaskStatus) -> str:
    """Return the lag, with its age if the figure is old."""
    lag, age_ms = status.gauge("lag"), status.gauge("lag_age_ms")
    if lag is None:
        return ""
    return f"{lag:,}" if age_ms is None else f"{lag:,} ({_duration(age_ms)} ago)"


def _state(info: TaskInfo) -> Text:
    if info.status is None:
        return Text(HELD, style="yellow") if info.is_held else Text("-")
    text = _colored(info.status.state)
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


def _colored(word: str) -> Text:
    return Text(str(word), style=_COLORS.get(word, ""))


def _age(age_ms: int | None) -> str:
    return f"{(age_ms or 0) / 1000:.1f} s"


def _duration(ms: int) -> str:
    """Return a time in the unit that suits it, such as `12 s` or `3 h`."""
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    for unit, length_ms, most in (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if ms < most * length_ms:
            return f"{ms // length_ms} {unit}"
    return f"{ms // 86_400_000:,} d"


class _UncutTable(Table):
    """A table that becomes wider than the terminal rather than cut columns at minimum width."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table with one character between columns."""
        least = sum(column.min_width or 0 for column in self.columns) + len(self.columns) - 1
        width = max(options.max_width, least)
        return super().__rich_console__(console, options.update(max_width=width))


def _table(
    title: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Text]],
    folded: Collection[str],
    numbers: Collection[str] = (),
) -> Table:
    """Return a table, without the columns `oldest` and `restarts` if nothing is in them.

    On a narrow terminal, the columns in `folded` break anywhere, and the others only between words.
    """
    table = _UncutTable(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    used = []
    for header, cells in zip(headers, columns, strict=True):
        if header in (_OLDEST, _RESTARTS) and not any(cells):
            continue
        used.append(cells)
        texts = [header, *(cell.plain for cell in cells)]
        longest_word = max(cell_len(word) for text in texts for word in text.split())
        longest_line = max(cell_len(line) for text in texts for line in text.split("\n"))
        table.add_column(
            header,
            justify="right" if header in numbers else "left",
            overflow="fold",
            no_wrap=header not in folded and longest_line == longest_word,
            min_width=_FOLDED_WIDTH if header in folded else longest_word,
        )
    for row in zip(*used, strict=True):
        table.add_row(*row)
    return table

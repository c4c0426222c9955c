"""Which processors and tasks are busy, and which ones fall behind: rates from the heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from kafka_pipeline.admin import event_times, left_out
from kafka_pipeline.admin.cluster_watcher import ClusterWatcher
from kafka_pipeline.admin.status import findings, job_manager_line, key_warnings, notes, state_of
from kafka_pipeline.admin.tables import duration, make_table
from kafka_pipeline.admin.task_rates import LEAST_S, TaskRates
from kafka_pipeline.common.cluster_status import ClusterStatus, TaskInfo
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.status import TaskState

_BEATS = 2.5
"""After this many heartbeat intervals, each task has been reported twice."""
_READ_S = 0.1
_FRAME_LINES = 5
"""The title and the head of a table, and the line that counts what is not shown."""

_PROCESSOR = ("processor", "running")
_TASK = ("task", "owner", "state")
_NUMBERS = ("in/s", "out/s", "lag", "oldest", "behind")
_TROUBLE = ("dead\nletters", "left\nout", "restarts")
_COUNTS = ("dead_letters", "restarts")


@dataclass(frozen=True, slots=True)
class Pace:
    """How a task, or several of them, do; `None` is unknown. Rates are records per second."""

    runs: bool
    """Whether all of them run, or are held."""
    rate_in: float | None
    rate_out: float | None
    lag: int | None
    oldest_ms: int | None
    behind_ms: int | None
    """How far event time is behind the newest record of the job."""

    @property
    def order(self) -> tuple[bool, int, int, float]:
        """What does not run comes first, then what lags most, then the slowest."""
        return self.runs, -(self.lag or 0), -(self.oldest_ms or 0), self.rate_in or 0.0

    def cells(self) -> list[str]:
        """Return the cells under `_NUMBERS`."""
        return [
            *("" if rate is None else f"{rate:,.0f}" for rate in (self.rate_in, self.rate_out)),
            "" if self.lag is None else f"{self.lag:,}",
            *("" if age is None else duration(age) for age in (self.oldest_ms, self.behind_ms)),
        ]


class TopView:
    """The processors and tasks of a job; each status adds to the rates."""

    def __init__(self, fits: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without rates; with `fits`, the view has no more lines than the terminal."""
        self._fits = fits
        self._clock = clock
        self._in = TaskRates("records_in")
        self._out = TaskRates("records_out")

    def update(self, status: ClusterStatus) -> RenderableType:
        """Return the view of a status."""
        now_s = self._clock()
        rates_in, rates_out = self._in.update(now_s, status), self._out.update(now_s, status)
        newest_ms = status.newest_record_ms
        paces = {
            info.task: _pace(info, rates_in.get(info.task), rates_out.get(info.task), newest_ms)
            for info in status.tasks
        }
        by_processor: dict[str, list[TaskInfo]] = {}
        for info in status.tasks:
            by_processor.setdefault(info.task.processor, []).append(info)
        sums = {n: _sum([paces[i.task] for i in infos]) for n, infos in by_processor.items()}
        processors = [
            _processor_row(name, by_processor[name], sums[name])
            for name in sorted(sums, key=lambda name: sums[name].order)
        ]
        tasks = [
            _task_row(info, paces[info.task])
            for info in sorted(status.tasks, key=lambda info: paces[info.task].order)
        ]
        said = [*notes(status), *event_times.lines(status), *left_out.lines(status)]
        said += [*key_warnings(status), *findings(status)]
        head = job_manager_line(status.job_manager)
        return _Screen(head, processors, tasks, said, self._fits)


@dataclass(frozen=True, slots=True)
class _Screen:
    """A view, which leaves out the last tasks if it has to fit the terminal."""

    head: Text
    processors: Sequence[Sequence[Text]]
    tasks: Sequence[Sequence[Text]]
    notes: Sequence[Text]
    fits: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the tables, and how many tasks are not shown."""
        parts: list[RenderableType] = [self.head, ""]
        numbers = (*_NUMBERS, *_TROUBLE)
        if self.processors:
            parts.append(_table("Processors", _PROCESSOR, numbers, self.processors))
            parts += ["", *self.notes, ""] if self.notes else [""]
        most = len(self.tasks)
        if self.fits:
            used = sum(len(console.render_lines(part, options, pad=False)) for part in parts)
            most = max(console.height - used - _FRAME_LINES, 1)
        if self.tasks:
            parts.append(_table("Tasks", _TASK, numbers, self.tasks[:most]))
        if len(self.tasks) > most:
            parts.append(Text(f"and {len(self.tasks) - most:,} more tasks", style="dim"))
        yield Group(*parts)


def read_top(config: Config) -> RenderableType:
    """Return one view, after two heartbeats at least; raises as `read_status`."""
    watcher, view = ClusterWatcher(config), TopView(fits=False)
    try:
        watcher.read_until_fresh()
        wait_s = max(_BEATS * config.heartbeat_interval_ms / 1000, LEAST_S)
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            view.update(watcher.status())
            watcher.read(_READ_S)
        return view.update(watcher.status())
    finally:
        watcher.close()


def _pace(
    info: TaskInfo, rate_in: float | None, rate_out: float | None, newest_ms: int | None
) -> Pace:
    status = info.status
    runs = info.is_held or (status is not None and status.state is TaskState.RUNNING)
    lag = status.gauge("lag") if status else None
    oldest_ms = status.gauge("oldest_waiting_ms") if status else None
    behind_ms = status.event_time_lag_ms(newest_ms) if status else None
    return Pace(runs, rate_in, rate_out, lag, oldest_ms, behind_ms)


def _sum(paces: Sequence[Pace]) -> Pace:
    """Return the pace of several tasks: sums, the oldest record of all, and who is last in time."""
    lags = [pace.lag for pace in paces if pace.lag is not None]
    return Pace(
        all(pace.runs for pace in paces),
        _added(pace.rate_in for pace in paces),
        _added(pace.rate_out for pace in paces),
        sum(lags) if lags else None,
        _most(pace.oldest_ms for pace in paces),
        _most(pace.behind_ms for pace in paces),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _added(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _processor_row(name: str, infos: Sequence[TaskInfo], pace: Pace) -> list[Text]:
    running = sum(
        info.status is not None and info.status.state is TaskState.RUNNING for info in infos
    )
    color = "" if pace.runs else "red"
    shown = Text(f"{running} of {len(infos)}", style=color)
    return [Text(name), shown, *map(Text, (*pace.cells(), *_trouble(infos)))]


def _task_row(info: TaskInfo, pace: Pace) -> list[Text]:
    owner = "" if info.owner is None else str(info.owner)
    cells = map(Text, (*pace.cells(), *_trouble([info])))
    return [Text(str(info.task)), Text(owner), state_of(info), *cells]


def _trouble(infos: Sequence[TaskInfo]) -> list[str]:
    """Return the cells under `_TROUBLE`; a count of 0 is left empty."""
    statuses = [info.status for info in infos if info.status is not None]
    letters, restarts = (sum(s.count(name) for s in statuses) for name in _COUNTS)
    lost = left_out.in_all(statuses)
    return [f"{letters:,}" if letters else "", lost, f"{restarts:,}" if restarts else ""]


def _table(
    title: str, names: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[Text]]
) -> RenderableType:
    return make_table(
        title,
        (*names, *numbers),
        rows,
        folded={names[0]},
        numbers=numbers,
        optional=("oldest", "behind", *_TROUBLE),
    )

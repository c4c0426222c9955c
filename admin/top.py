"""Which processors and tasks are busy, and which ones fall behind: rates from the heartbeats."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from kafka_pipeline.admin.remarks import findings, remarks, with_lately
from kafka_pipeline.admin.status import job_manager_line, state_of
from kafka_pipeline.admin.tables import duration, make_table
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, TaskInfo
from kafka_pipeline.common.cluster.figures import Figures, by_processor, together
from kafka_pipeline.common.cluster.rates import RateLog
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.operations.cluster_watcher import ClusterWatcher

_BEATS = 2.5
"""After this many heartbeat intervals, each task has been reported twice."""
_LEAST_S = 2.0
_READ_S = 0.1
_FRAME_LINES = 5
"""The title and the head of a table, and the line that counts what is not shown."""

_PROCESSOR = ("processor", "running")
_TASK = ("task", "owner", "state")
_OPTIONAL = ("oldest", "behind", "dead\nletters", "left\nout", "restarts")
_NUMBERS = ("in/s", "out/s", "lag", *_OPTIONAL)


class TopView:
    """The processors and tasks of a job; each status adds to the rates."""

    def __init__(
        self, fits: bool, heartbeat_interval_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin without rates; with `fits`, the view has no more lines than the terminal."""
        self._fits = fits
        self._clock = clock
        self._log = RateLog(heartbeat_interval_ms)

    def update(self, status: ClusterStatus) -> RenderableType:
        """Return the view of a status."""
        rates = self._log.take(int(self._clock() * 1000), status)
        newest_ms, processors = status.newest_record_ms, by_processor(status, rates)
        tasks = [(info, together([info], newest_ms, rates)) for info in status.tasks]
        return _Screen(
            job_manager_line(status.job_manager),
            [
                _processor_row(name, processors[name])
                for name in sorted(processors, key=lambda name: _order(processors[name]))
            ],
            [_task_row(info, its) for info, its in sorted(tasks, key=lambda each: _order(each[1]))],
            [*remarks(status, processors), *findings(status)],
            self._fits,
        )


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
        if self.processors:
            parts.append(_table("Processors", _PROCESSOR, self.processors))
            parts += ["", *self.notes, ""] if self.notes else [""]
        most = len(self.tasks)
        if self.fits:
            used = sum(len(console.render_lines(part, options, pad=False)) for part in parts)
            most = max(console.height - used - _FRAME_LINES, 1)
        if self.tasks:
            parts.append(_table("Tasks", _TASK, self.tasks[:most]))
        if len(self.tasks) > most:
            parts.append(Text(f"and {len(self.tasks) - most:,} more tasks", style="dim"))
        yield Group(*parts)


def read_top(config: Config) -> RenderableType:
    """Return one view, after two heartbeats at least; raises as `read_status`."""
    view = TopView(False, config.heartbeat_interval_ms)
    with closing(ClusterWatcher(config)) as watcher:
        watcher.read_until_fresh()
        wait_s = max(_BEATS * config.heartbeat_interval_ms / 1000, _LEAST_S)
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            view.update(watcher.status())
            watcher.read(_READ_S)
        return view.update(watcher.status())


def _order(figures: Figures) -> tuple[bool, int, int, float]:
    """What does not run comes first, then what lags most, then the slowest."""
    lag, oldest_ms = figures.lag or 0, figures.oldest_ms or 0
    return figures.all_run, -lag, -oldest_ms, figures.rate_in or 0.0


def _processor_row(name: str, figures: Figures) -> list[Text]:
    color = "" if figures.all_run else "red"
    running = Text(f"{figures.running} of {figures.tasks}", style=color)
    return [Text(name), running, *_numbers(figures)]


def _task_row(info: TaskInfo, figures: Figures) -> list[Text]:
    owner = "" if info.owner is None else str(info.owner)
    return [Text(str(info.task)), Text(owner), state_of(info), *_numbers(figures)]


def _numbers(figures: Figures) -> list[Text]:
    """Return the cells under `_NUMBERS`; a count of 0 is left empty, as are unknown rates."""
    left_out = sum(each.records for each in figures.left_out)
    lately = sum(each.per_minute for each in figures.left_out)
    letters, restarts = figures.counts["dead_letters"], figures.counts["restarts"]
    cells = (
        *("" if rate is None else f"{rate:,.0f}" for rate in (figures.rate_in, figures.rate_out)),
        "?" if figures.lag is None else f"{figures.lag:,}",
        *("" if age is None else duration(age) for age in (figures.oldest_ms, figures.behind_ms)),
        f"{letters:,}" if letters else "",
        with_lately(left_out, lately) if left_out else "",
        f"{restarts:,}" if restarts else "",
    )
    return [Text(cell) for cell in cells]


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[Text]]) -> RenderableType:
    headers = (*names, *_NUMBERS)
    return make_table(title, headers, rows, {names[0]}, numbers=_NUMBERS, optional=_OPTIONAL)

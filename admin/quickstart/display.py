"""The quickstart's output while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.remarks import notes
from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.admin.status import task_managers_table, tasks_table
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus, unread_of
from kafka_pipeline.common.cluster.rates import Rates
from kafka_pipeline.common.tasks import TaskId

_LINE_INTERVAL_S = 1.0
_LIVE_INTERVAL_S = 0.2
_BAR_WIDTH = 50
_PIPE_WIDTH = 120


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far the run is; rates are records per second."""

    loaded: int
    to_load: int
    arrived: int
    to_arrive: int
    rate: float
    status: ClusterStatus
    task_rates: Mapping[TaskId, Rates]

    @property
    def lag(self) -> str:
        """The lag of all tasks in records, or `?` while it is not known."""
        lag = unread_of(self.status.tasks)
        return "?" if lag is None else f"{lag:,}"

    @property
    def task_managers_up(self) -> str:
        """The number of TaskManagers that are up, such as `1 of 2`."""
        return f"{len(self.status.managers_up)} of {len(self.status.task_managers)}"


class Display:
    """Prints events as they happen, and the progress in between. Use it in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_s = time.monotonic()
        self._next_s = 0.0
        self._stack = ExitStack()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    def event(self, text: str, style: str = "") -> None:
        """Print a line that stays, with the seconds since the start."""
        line = Text(f"{self._elapsed_s():5.1f} s  ", style="dim")
        line.append(text, style=style or "not dim")
        self._console.print(line, soft_wrap=True)

    def text(self, content: RenderableType) -> None:
        """Print something that stays."""
        if isinstance(content, str):
            # It contains names of folders, which may look like rich's markup or an emoji.
            content = Text(content)
        self._console.print(content, soft_wrap=isinstance(content, Text))

    def update(self, progress: RunProgress) -> None:
        """Show the progress, unless it was shown only a moment ago."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        if self._console.is_terminal:
            self._next_s = now_s + _LIVE_INTERVAL_S
            if self._live is None:
                self._live = self._stack.enter_context(
                    Live(console=self._console, auto_refresh=False, transient=True)
                )
            self._live.update(_live_view(progress), refresh=True)
        else:
            self._next_s = now_s + _LINE_INTERVAL_S
            self.event(_line(progress))

    def finish(self) -> None:
        """Remove the live table; lines printed by `event` stay."""
        self._stack.close()
        self._live = None

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s


def _line(progress: RunProgress) -> str:
    return (
        f"in {progress.loaded:>7,}  out {progress.arrived:>7,}  {progress.rate:>7,.0f} records/s  "
        f"lag {progress.lag:>6}  TaskManagers {progress.task_managers_up}"
    )


def _live_view(progress: RunProgress) -> RenderableType:
    bars = Table.grid(padding=(0, 1))
    for name, done, total in (
        ("in", progress.loaded, progress.to_load),
        ("out", progress.arrived, progress.to_arrive),
    ):
        bars.add_row(name, ProgressBar(total, done, _BAR_WIDTH), f"{done:,} of {total:,}")
    return Group(
        bars,
        Text(f"{progress.rate:,.0f} records/s out"),
        task_managers_table(progress.status),
        tasks_table(progress.status, progress.task_rates),
        *notes(progress.status),
    )


def run_shown(run: Callable[[Display, Signals], bool]) -> None:
    """Run something with a display; exit with 1 unless it returns True, and as signals ask for."""
    signals = Signals()
    signals.install()
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    try:
        with Display(console) as display:
            is_right = run(display, signals)
    except Interrupted as interruption:
        raise SystemExit(128 + interruption.number) from None
    if not is_right:
        raise SystemExit(1)

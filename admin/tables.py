"""Tables for a terminal, and what is in their cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from kafka_pipeline.common.cluster.cluster_status import Presence
from kafka_pipeline.common.protocol.status import TaskState

_FOLDED_WIDTH = 4

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


def colored(word: str) -> Text:
    """Return a state in its color."""
    return Text(str(word), style=_COLORS.get(word, ""))


def duration(ms: int) -> str:
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


def make_table(
    title: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[Text]],
    folded: Collection[str],
    numbers: Collection[str] = (),
    optional: Collection[str] = (),
) -> Table:
    """Return a table, without the columns in `optional` if nothing is in them.

    On a narrow terminal, the columns in `folded` break anywhere, and the others only between words.
    """
    table = _UncutTable(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(headers)
    used = []
    for header, cells in zip(headers, columns, strict=True):
        if header in optional and not any(cells):
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

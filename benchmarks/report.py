"""The results of a comparison's rounds: medians, ranges and ratios, as tables and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

NO_FIGURE = "-"

Rounds = Sequence[Mapping[str, float]]
"""The figures of one contender's run in each round, by name."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A figure over all rounds."""

    median: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Column:
    """A figure in a table."""

    figure: str
    title: str
    decimals: int = 0

    def text(self, summary: Summary) -> str:
        """Return `median (min..max)`, or only the figure if all rounds agree."""
        median, low, high = (f"{value:,.{self.decimals}f}" for value in _values(summary))
        return median if low == high else f"{median} ({low}..{high})"


_CPU = Column("cpu_s_per_million", "CPU s per million", 2)
_BROKER = Column("broker_cpu_s_per_million", "broker's CPU s per million", 2)
_MEMORY = Column("peak_mb", "peak MB")

COLUMNS = {
    "throughput": (Column("records_per_s", "records/s"), _CPU, _BROKER, _MEMORY),
    "capacity": (
        Column("records_per_s", "records/s sustained"),
        Column("records_per_s_per_core", "records/s per core"),
        _CPU,
        _BROKER,
        _MEMORY,
    ),
    "latency": (
        Column("p99_ms", "p99 ms", 1),
        Column("p50_ms", "p50 ms", 1),
        Column("max_ms", "max ms", 1),
        _CPU,
        _BROKER,
        _MEMORY,
    ),
    "restore": (
        Column("rebuild_s", "rebuild s", 2),
        Column("state_records_per_s", "state records/s"),
        Column("start_s", "start with state s", 2),
        Column("start_without_state_s", "start without state s", 2),
        Column("start_cpu_s", "CPU s of the one", 1),
        Column("start_without_state_cpu_s", "CPU s of the other", 1),
        _MEMORY,
    ),
    "failover": (
        Column("outage_s", "outage s", 2),
        Column("other_outage_s", "other partition's s", 2),
        _MEMORY,
    ),
}
"""The columns of each measurement; the ratio is that of the first column."""


@dataclass(frozen=True, slots=True)
class Row:
    """A contender in a table. If it has no rounds, it failed in all of them."""

    title: str
    rounds: Rounds


@dataclass(frozen=True, slots=True)
class Table:
    """The contenders of one measurement; the others are compared with the first row."""

    title: str
    measurement: str
    rows: Sequence[Row]


def summarize(rounds: Rounds) -> dict[str, Summary]:
    """Return the median and the range of each figure."""
    figures = rounds[0] if rounds else ()
    values = {figure: [each[figure] for each in rounds] for figure in figures}
    return {
        figure: Summary(statistics.median(found), min(found), max(found))
        for figure, found in values.items()
    }


def ratios(ours: Rounds, theirs: Rounds) -> dict[str, float]:
    """Return the ratio of our median to theirs for each common figure, unless theirs is 0."""
    mine, other = summarize(ours), summarize(theirs)
    return {
        figure: mine[figure].median / other[figure].median
        for figure in mine.keys() & other.keys()
        if other[figure].median
    }


def as_text(table: Table) -> str:
    """Return a table in Markdown, its columns aligned."""
    columns = COLUMNS[table.measurement]
    key = columns[0].figure
    lines = [["", columns[0].title, "ours ÷ it", *(column.title for column in columns[1:])]]
    for row in table.rows:
        summary = summarize(row.rounds)
        cells = [
            column.text(summary[column.figure]) if summary else NO_FIGURE for column in columns
        ]
        ratio = ratios(table.rows[0].rounds, row.rounds).get(key)
        cells.insert(1, NO_FIGURE if ratio is None else f"{ratio:.2f}")
        lines.append([row.title, *cells])
    return f"{table.title}\n\n{aligned(lines)}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, its columns aligned; the first row has their titles."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def as_json(table: Table) -> dict[str, Any]:
    """Return a table with all figures of all rounds."""
    ours = table.rows[0].rounds
    return {
        "title": table.title,
        "measurement": table.measurement,
        "rows": [
            {
                "title": row.title,
                "rounds": [dict(figures) for figures in row.rounds],
                "summary": {key: asdict(found) for key, found in summarize(row.rounds).items()},
                "ours_over_this": ratios(ours, row.rounds),
            }
            for row in table.rows
        ],
    }


def _values(summary: Summary) -> tuple[float, float, float]:
    return summary.median, summary.min, summary.max

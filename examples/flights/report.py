"""The example's final report: the figures, and whether they are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from examples.flights.verdict import Comparison, HourlyDelays
from kafka_pipeline.admin.quickstart.outage import Outage

_LARGEST = 5


def report(
    delays: Sequence[HourlyDelays],
    comparisons: Sequence[Comparison],
    lost: Outage | None,
    problems: Sequence[str],
) -> RenderableType:
    """Return the figures and the verdict; `problems` do not concern the results."""
    figures = Table.grid(padding=(0, 2))
    for comparison in comparisons:
        answer = f"pandas says {comparison.expected:,}"
        figures.add_row(comparison.what, f"{comparison.found:,}", answer)
    if lost is not None:
        figures.add_row("kill -9", *lost.figures())
    return Group("", figures, "", _airlines(delays), "", _verdict(comparisons, problems))


def _airlines(delays: Sequence[HourlyDelays]) -> Table:
    """Return the largest airlines with their delays, summed over the hours."""
    table = Table(
        "airline",
        Column("flights", justify="right"),
        Column("mean delay at arrival", justify="right"),
        title="Largest airlines",
        title_justify="left",
    )
    flights, arrived, minutes = Counter[str](), Counter[str](), Counter[str]()
    for (airline, _), (all_of_hour, arrived_of_hour, minutes_of_hour) in delays:
        flights[airline] += all_of_hour
        arrived[airline] += arrived_of_hour
        minutes[airline] += minutes_of_hour
    for airline, count in flights.most_common(_LARGEST):
        mean = minutes[airline] / max(1, arrived[airline])
        table.add_row(Text(airline), f"{count:,}", f"{mean:.1f} min")
    return table


def _verdict(comparisons: Sequence[Comparison], problems: Sequence[str]) -> Text:
    wrong = [*(each for comparison in comparisons for each in comparison.problems), *problems]
    if not wrong:
        return Text(
            "RIGHT: every result is there once, and equals that of pandas.", style="bold green"
        )
    text = Text("WRONG", style="bold red")
    for problem in wrong:
        text.append(f"\n  {problem}")
    return text

"""The quickstart's final report: the results, and whether they are right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from kafka_pipeline.admin.quickstart.flights import Flights
from kafka_pipeline.admin.quickstart.outage import Outage
from kafka_pipeline.admin.quickstart.verdict import Verdict, expect

_BUSIEST = 8


def report(
    verdict: Verdict, flights: Flights, outage: Outage | None, problems: Sequence[str]
) -> RenderableType:
    """Return the figures and the verdict; `problems` do not concern the results."""
    figures = Table.grid(padding=(0, 2))
    figures.add_row("flights in", f"{verdict.flights:,}")
    figures.add_row("results", f"{verdict.outputs:,}", "one for each flight with a known delay")
    figures.add_row("dead letters", f"{verdict.dead_letters:,}", "one for each without")
    cancelled = sum(delay is None for _, delay in flights.outcomes)
    figures.add_row("left out", f"{cancelled:,}", "cancelled, as the query says")
    if outage is not None:
        figures.add_row("kill -9", *outage.figures())
    return Group("", figures, "", _busiest(flights), "", _verdict(verdict, problems))


def _busiest(flights: Flights) -> Table:
    table = Table(
        "airport",
        Column("flights counted", justify="right"),
        title="Busiest airports",
        title_justify="left",
    )
    for airport, count in expect(flights.outcomes).counts.most_common(_BUSIEST):
        table.add_row(Text(airport.decode()), f"{count:,}")
    return table


def _verdict(verdict: Verdict, problems: Sequence[str]) -> Text:
    wrong = (*verdict.problems, *problems)
    if not wrong:
        return Text(
            "RIGHT: exactly once and in order. Each airport's counts run from 1 to the number of "
            "its flights without a gap, a repetition or a swap, every flight without a known delay "
            "is a dead letter with its reason, and no cancelled one came through.",
            style="bold green",
        )
    text = Text("WRONG", style="bold red")
    for problem in wrong:
        text.append(f"\n  {problem}")
    return text

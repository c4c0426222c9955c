"""The example's final report: the figures, and whether they are right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from admin.quickstart.outage import Outage
from examples.flights.verdict import Comparison


def report(
    comparisons: Sequence[Comparison], lost: Outage | None, problems: Sequence[str]
) -> RenderableType:
    """Return the figures and the verdict; `problems` do not concern the results."""
    figures = Table.grid(padding=(0, 2))
    for comparison in comparisons:
        answer = f"pandas says {comparison.expected:,}"
        figures.add_row(comparison.what, f"{comparison.found:,}", answer)
    if lost is not None:
        figures.add_row("kill -9", *lost.figures())
    return Group("", figures, "", _verdict(comparisons, problems))


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

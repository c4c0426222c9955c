"""Compares results with the expected ones, and reports the verdict; knows nothing of the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.quickstart.outage import Outage

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many results there are, how many there should be, and what is wrong with them."""

    what: str
    found: int
    expected: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found out about the results: figures, a table, and mistakes; none if all is right.

    A row of `figures` has a name, a number, and what that means. `right` is the verdict without
    mistakes.
    """

    figures: Sequence[tuple[str, str, str]]
    table: Table
    problems: Sequence[str]
    right: str


def compare(
    what: str, results: Iterable[Hashable], expected: Iterable[Hashable] | Counter[Hashable]
) -> Comparison:
    """Compare results in any order: each must be there as often as expected, and nothing else.

    Thousands of mistakes of one kind make one line, with the first of them.
    """
    found, wanted = Counter(results), Counter(expected)
    more = found - wanted
    mistakes = {
        "missing": wanted - found,
        "too often": {each: count for each, count in more.items() if each in wanted},
        "not expected": {each: count for each, count in more.items() if each not in wanted},
    }
    problems = tuple(
        f"{what} {kind}: {sum(counts.values()):,} "
        f"({'; '.join(str(each) for each in list(counts)[:_EXAMPLES])})"
        for kind, counts in mistakes.items()
        if counts
    )
    return Comparison(what, found.total(), wanted.total(), problems)


def report(checked: Checked, lost: Outage | None, problems: Sequence[str]) -> RenderableType:
    """Return the figures and the verdict; `lost` is how long results stayed away after a kill."""
    figures = Table.grid(padding=(0, 2))
    for row in checked.figures:
        figures.add_row(*row)
    if lost is not None:
        figures.add_row("kill -9", *lost.figures())
    verdict = Text(checked.right, style="bold green")
    if problems:
        verdict = Text("WRONG", style="bold red")
        for problem in problems:
            verdict.append(f"\n  {problem}")
    return Group("", figures, "", checked.table, "", verdict)

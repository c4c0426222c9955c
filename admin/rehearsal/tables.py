"""The report of a rehearsal, in the form shown on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from kafka_pipeline.common.clock import shown_moment
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.operations.rehearsal.comparer import Kind, Side
from kafka_pipeline.operations.rehearsal.report import Report, lines_of
from kafka_pipeline.operations.rehearsal.report_json import Verdict

_STYLES = {Verdict.EQUAL: "bold green", Verdict.DIFFERENT: "bold red", Verdict.NOTHING: "yellow"}


def report_view(report: Report, *, with_values: bool) -> RenderableType:
    """Return a report for a terminal, with keys and values of records only if that is allowed."""
    parts: list[RenderableType] = [_results(report), "", _speeds(report)]
    examples = [each for tally in report.tallies.values() for each in tally.examples]
    if examples:
        parts += ["", Text("The first differences:")]
        for example in examples:
            parts += [Text(f"  {line}") for line in lines_of(example, with_values=with_values)]
        if not with_values:
            parts.append(Text("  log_record_values: true in config.yaml shows keys and values"))
    for side in Side:
        parts += [Text(f"{side} version: {line}", style="red") for line in report.failed[side]]
    parts += [Text(f"- {line}", style="yellow") for line in _remarks(report)]
    parts += ["", Text(_sentence(report), style=_STYLES[report.verdict])]
    return Group(*parts)


def _results(report: Report) -> Table:
    kinds = [Column(str(kind), justify="right") for kind in ("equal", *Kind)]
    table = Table(Column("results of"), *kinds)
    for name, tally in report.tallies.items():
        found = [tally.equal, *tally.differences.values()]
        table.add_row(Text(name), *(f"{count:,}" for count in found))
    return table


def _speeds(report: Report) -> Table:
    table = Table("version", *(Column(text, justify="right") for text in ("offsets/s", "lag")))
    for side, figures in report.figures.items():
        table.add_row(str(side), f"{figures.per_s:,.0f}", f"{figures.lag:,}")
    if report.catching_up is not None:
        catching_up = report.catching_up
        name = f"new, its first {catching_up.seconds:.0f} s"
        table.add_row(name, f"{catching_up.per_s:,.0f}", f"{catching_up.lag:,}")
    return table


def _remarks(report: Report) -> Iterator[str]:
    yield from report.notes
    if report.judged_early:
        yield (
            f"{counted(report.judged_early, 'result')} were judged early, as too many of both "
            "versions waited for their counterparts: one of them may have come later"
        )
    if any(report.waiting.values()):
        listed = " and ".join(
            f"{count:,} of the {side} one" for side, count in report.waiting.items()
        )
        yield f"results without a counterpart so far, not judged: {listed}"


def _sentence(report: Report) -> str:
    match report.verdict:
        case Verdict.NOTHING:
            return "NOTHING COMPARED: no result of both versions was there to compare"
        case Verdict.DIFFERENT:
            text = "DIFFERENT"
        case Verdict.EQUAL:
            text = "EQUAL"
    if report.compared_until_ms is None:
        return text
    return (
        f"{text}: compared is what comes of records before {shown_moment(report.compared_until_ms)}"
    )

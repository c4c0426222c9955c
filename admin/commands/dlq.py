"""`pipeline dlq`: lists dead letters, shows one, sends them back, and forgets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, DryRun, Yes
from kafka_pipeline.admin.terminal import require_consent, show, show_json
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError, shorten
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.operations.dead_letters import DeadLetter, LetterId, Wanted, text_of
from kafka_pipeline.operations.faults import faults
from kafka_pipeline.operations.redrive import DeadLetterTopics
from kafka_pipeline.operations.times import parse_time, shown_time

_LONGEST_VALUE = 60
_LONGEST_REASON = 120

dlq_app = typer.Typer(
    help="Look at dead letters, and deal with them.",
    no_args_is_help=True,
)

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Ids such as Adder:1:49; all of them by default."),
]
Processors = Annotated[
    list[str] | None, typer.Option("--processor", metavar="ID", help="Only of this processor.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only records that came from this topic."),
]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Only those with this in their reason or error.")
]
Since = Annotated[
    str, typer.Option(metavar="TIME", help="Only records from this time on, in ISO 8601.")
]
Until = Annotated[str, typer.Option(metavar="TIME", help="Only records before this time.")]


@dlq_app.command("list")
@run_command
def list_letters(
    config: ConfigPath,
    ids: Ids = None,
    processors: Processors = None,
    topics: Topics = None,
    reason: Reason = "",
    since: Since = "",
    until: Until = "",
    every: Annotated[
        bool, typer.Option("--all", help="Also those that were redriven or purged.")
    ] = False,
    by_reason: Annotated[
        bool,
        typer.Option("--by-reason", help="Only how many there are of each processor and reason."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters: where each record came from, and why it was rejected.

    With `--by-reason`, reasons that differ only in numbers count as one.

    Exit codes: 0 done, 2 wrong arguments, 3 Kafka does not answer.
    """
    wanted = _wanted(ids, processors, topics, reason, since, until)
    found = DeadLetterTopics(load_config(config)).find(wanted, handled=every)
    if by_reason:
        found.sort(key=lambda letter: letter.timestamp_ms, reverse=True)
        counts = faults(found)
        show_json(counts) if as_json else show(_counts_table(counts))
    elif as_json:
        show_json([letter.to_json() for letter in found])
    else:
        show(_table(found))


@dlq_app.command("show")
@run_command
def show_letter(config: ConfigPath, id_: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Print all of a dead letter as JSON, with the stack trace and the whole value.

    Exit codes: 0 done, 2 there is no such dead letter, 3 Kafka does not answer.
    """
    wanted = _wanted([id_], None, None, "", "", "")
    (letter,) = DeadLetterTopics(load_config(config)).find(wanted, handled=True)
    show_json(letter.to_json())


@dlq_app.command("redrive")
@run_command
def redrive(
    config: ConfigPath,
    ids: Ids = None,
    processors: Processors = None,
    topics: Topics = None,
    reason: Reason = "",
    since: Since = "",
    until: Until = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Send dead letters back to the topics and partitions that their records came from.

    Each is sent once, however often the command is interrupted and repeated. All readers of such a
    topic get the record again, after records that it was ahead of.

    Exit codes: 0 done, 1 the answer was no, 2 wrong arguments, or a topic is gone, 3 Kafka does not
    answer.
    """
    letters = DeadLetterTopics(load_config(config))
    wanted = _wanted(ids, processors, topics, reason, since, until)
    if _is_meant(letters.find(wanted), "redrive", dry_run, yes):
        typer.echo(f"redriven: {counted(letters.redrive(wanted), 'dead letter')}")


@dlq_app.command("purge")
@run_command
def purge(
    config: ConfigPath,
    ids: Ids = None,
    processors: Processors = None,
    topics: Topics = None,
    reason: Reason = "",
    since: Since = "",
    until: Until = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Remove dead letters for good; their data is deleted once no other letter is ahead of them.

    Exit codes: 0 done, 1 the answer was no, 2 wrong arguments, 3 Kafka does not answer.
    """
    letters = DeadLetterTopics(load_config(config))
    wanted = _wanted(ids, processors, topics, reason, since, until)
    if _is_meant(letters.find(wanted), "purge", dry_run, yes):
        typer.echo(f"purged: {counted(letters.purge(wanted), 'dead letter')}")


def _wanted(
    ids: list[str] | None,
    processors: list[str] | None,
    topics: list[str] | None,
    reason: str,
    since: str,
    until: str,
) -> Wanted:
    """Return which letters are meant. Raises `ConfigError` for a wrong id or time."""
    try:
        return Wanted(
            processors=processors or (),
            ids=[LetterId.parse(each) for each in ids or ()],
            topics=topics or (),
            reason=reason,
            since_ms=parse_time(since) if since else None,
            until_ms=parse_time(until) if until else None,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _is_meant(found: list[DeadLetter], what: str, dry_run: bool, yes: bool) -> bool:
    """Say which letters are meant, and ask; return whether to go on."""
    by_processor = Counter(letter.id.processor for letter in found)
    listed = ", ".join(f"{count:,} of {id_}" for id_, count in by_processor.items())
    typer.echo(f"{counted(len(found), 'dead letter')}{f': {listed}' if found else ''}")
    if dry_run or not found:
        return False
    require_consent(f"{what.capitalize()} {counted(len(found), 'dead letter')}?", yes=yes)
    return True


def _table(found: list[DeadLetter]) -> Table:
    table = Table("id", "came from", "time", "key", "value", "why")
    for letter in found:
        origin = "" if letter.came_from is None else "{}[{}]@{}".format(*letter.came_from)
        why = f"{letter.handled}: {letter.reason}" if letter.handled else letter.reason
        cells = (
            str(letter.id),
            origin,
            shown_time(letter.timestamp_ms),
            shorten(text_of(letter.key) or "", _LONGEST_VALUE),
            shorten(text_of(letter.value) or "", _LONGEST_VALUE),
            shorten(why, _LONGEST_REASON),
        )
        table.add_row(*(Text(printable(cell, LAYOUT)) for cell in cells))
    return table


def _counts_table(counts: Sequence[dict[str, Any]]) -> Table:
    table = Table("letters", "processor", "why", "oldest", "newest")
    for row in counts:
        cells = (
            f"{row['count']:,}",
            row["processor"],
            shorten(row["reason"], _LONGEST_REASON),
            shown_time(row["oldest_ms"]),
            shown_time(row["newest_ms"]),
        )
        table.add_row(*(Text(printable(cell, LAYOUT)) for cell in cells))
    return table

"""`pipeline reset`: lets processors read their inputs again, or leave records out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from kafka_pipeline.admin.arguments import ConfigPath, DryRun, Yes, duration_of, time_of
from kafka_pipeline.admin.terminal import require_consent, show
from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted, one_of
from kafka_pipeline.operations.reset import Inputs, Reset, Shift, Target
from kafka_pipeline.operations.starts import AtOffset, AtTime, Earliest, Latest


class State(StrEnum):
    """What becomes of the state of the processors."""

    KEEP = "keep"
    CLEAR = "clear"


@run_command
def reset(
    config: ConfigPath,
    processors: Annotated[
        list[str], typer.Argument(metavar="PROCESSOR...", help="Ids of paused processors.")
    ],
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the oldest record.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: unread records are skipped.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, metavar="N", help="To an offset.")] = None,
    to_datetime: Annotated[
        str, typer.Option(metavar="TIME", help="To the first record of this time, in ISO 8601.")
    ] = "",
    by_duration: Annotated[
        str, typer.Option(metavar="TIME", help="The same, this long before now: 30 min, 12 h.")
    ] = "",
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="By this many offsets; back if negative.")
    ] = None,
    state: Annotated[
        State | None,
        typer.Option(help="What to do with their state; required if they have any."),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this input.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, metavar="N", help="Only this number.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Set the committed offsets of processors, for all their inputs, while they are paused.

    Offsets outside the range of a partition become its beginning or its end. Results that were
    written before stay where they are. Give one of the options --to-…, --by-duration or --shift-by.

    Exit codes: 0 done, 1 the answer was no, 2 wrong arguments or running tasks, 3 Kafka does not
    answer.
    """
    before_ms = wall_clock_ms() - duration_of("--by-duration", by_duration) if by_duration else 0
    target = _target(
        {
            "--to-earliest": Earliest() if to_earliest else None,
            "--to-latest": Latest() if to_latest else None,
            "--to-offset": None if to_offset is None else AtOffset(to_offset),
            "--to-datetime": AtTime(time_of("--to-datetime", to_datetime)) if to_datetime else None,
            "--by-duration": AtTime(before_ms) if by_duration else None,
            "--shift-by": None if shift_by is None else Shift(shift_by),
        }
    )
    inputs = Inputs(topics=topics or (), partitions=partitions or ())
    found = Reset(load_config(config), processors, target, inputs)
    clears = _clears(found, state, inputs)
    show(_table(found))
    if clears:
        typer.echo(f"state that is deleted: {', '.join(found.state_topics)}")
    if dry_run:
        return
    require_consent(f"Set {counted(len(found.moves), 'offset')}?", yes=yes)
    found.carry_out(clears_state=clears)
    typer.echo(f"done: {counted(len(found.moves), 'offset')} set")


def _target(given: Mapping[str, Target | None]) -> Target:
    targets = [target for target in given.values() if target is not None]
    if len(targets) != 1:
        raise ConfigError(f"give one of {one_of(given)}")
    return targets[0]


def _clears(found: Reset, state: State | None, inputs: Inputs) -> bool:
    """Return whether state is to be deleted. Raises `ConfigError` if that is not clear."""
    if not found.state_topics:
        return False
    if state is None:
        raise ConfigError(
            f"the processors keep state in {', '.join(found.state_topics)}: give --state clear to "
            "begin without it, or --state keep, and what is read again is added to it"
        )
    if state is State.CLEAR and not inputs.are_all:
        raise ConfigError("--state clear is about all inputs: leave --topic and --partition out")
    return state is State.CLEAR


def _table(found: Reset) -> Table:
    table = Table("processor", "input", "committed", "becomes", "records")
    for move in found.moves:
        before = None if move.before is None else move.before.offset
        change = "" if before is None else f"{move.offset - before:+,}"
        topic, number = move.partition
        shown = "-" if before is None else f"{before:,}"
        table.add_row(move.processor, f"{topic}[{number}]", shown, f"{move.offset:,}", change)
    return table

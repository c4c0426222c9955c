"""`pipeline backfill`: runs a pipeline over history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kafka_pipeline.admin.arguments import ConfigPath, PipelinePath
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted


@run_command
def backfill(
    config: ConfigPath,
    pipeline: PipelinePath,
    from_: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="[NAME=]WHERE",
            help="A Parquet or CSV file, a folder of them, topic:NAME, or topic:NAME@FROM..TO with "
            "offsets or times (digits alone are an offset, a date is 2026-01-31); once for each "
            "source.",
        ),
    ],
    to: Annotated[
        str, typer.Option(metavar="WHERE", help="A folder that is new or empty, or topic:NAME.")
    ],
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where to keep the progress, outside of --from and --to. Default: next to --to, "
            "or in state_dir.",
        ),
    ] = None,
) -> None:
    """Run a pipeline over history, as a batch job on Spark; continues where it was interrupted.

    Exit codes: 0 done, 1 a record was rejected, 2 wrong argument, file or input, 3 Spark cannot
    start, or Kafka does not answer.
    """
    # Imported late: Arrow and Spark take a while, and most commands do not need them.
    from kafka_pipeline.streams.backfill.places import is_by_time
    from kafka_pipeline.streams.backfill.plan import make_plan
    from kafka_pipeline.streams.backfill.run import default_work, run_backfill
    from kafka_pipeline.streams.backfill.spark_jobs import BoundedJobs

    plan = make_plan(config, pipeline, from_, to)
    result = run_backfill(plan, work or default_work(plan), Console(stderr=True), BoundedJobs)
    written = ", ".join(f"{count:,} to {topic}" for topic, count in result.written.items())
    typer.echo(f"{counted(result.read, 'record')} read; written: {written or 'none'}")
    if not result.read and any(is_by_time(where) for where in plan.sources.values()):
        typer.echo(
            "the range has no records: its times are those that Kafka has of records, also if the "
            "source takes event time from a field"
        )
    if result.skipped or result.dropped:
        typer.echo(f"{result.skipped:,} skipped, {result.dropped:,} dropped")

"""`pipeline rescale`: changes the parallelism of a job, and spreads its state anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, DryRun, RestTimeout, Yes
from kafka_pipeline.admin.terminal import require_consent, say_progress, show
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.config_keys import PARALLELISM
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment.job import connected


@run_command
def rescale(
    config: ConfigPath,
    parallelism: Annotated[
        int,
        typer.Option(
            min=1,
            max=PARALLELISM.high,
            metavar="N",
            help="The new number of partitions of arcs and internal topics.",
        ),
    ],
    by_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PROCESSOR",
            help="The stores of its code have the keys of its records; may be repeated.",
        ),
    ] = None,
    savepoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the savepoint is made; rescale-<job>-to-<N> in savepoint_dir by default.",
            file_okay=False,
        ),
    ] = None,
    timeout_s: RestTimeout = 300,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give a job another parallelism: drain it, make a savepoint, and restore that by key.

    Repeat the command if it was interrupted: it continues where it was. The savepoint stays, and
    holds the job as it was before. Sources and sinks keep their partitions. Afterwards, set
    `parallelism` in config.yaml to the same number.

    Exit codes: 0 done, 1 the answer was no, 2 the state cannot be redistributed, 3 Kafka does not
    answer, or the disk cannot be used, or time is up.
    """
    from kafka_pipeline.operations.savepoints.change_at_rest import ChangeAtRest  # starts slowly
    from kafka_pipeline.operations.savepoints.rescale import Rescale

    settings = load_config(config)
    name = f"rescale-{settings.job_name or 'job'}-to-{parallelism}"
    folder = savepoint or settings.savepoint_dir / name
    admin = connected(settings)
    change = ChangeAtRest(settings, admin, folder, say_progress)
    found = Rescale(admin, change, parallelism, by_key or ())
    show(found.table())
    if dry_run:
        return
    require_consent(f"Stop the job, and give it a parallelism of {parallelism}?", yes=yes)
    number = found.carry_out(timeout_s)
    typer.echo(f"done: version {number} is the pipeline of the job")
    if settings.parallelism != parallelism:
        typer.echo(f"set parallelism to {parallelism} in {config}: it says {settings.parallelism}")

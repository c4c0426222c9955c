"""`pipeline grow`: lets more TaskManagers take part in a job that runs, or fewer."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, DryRun
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.config_keys import TM_NUMBER
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.operations.grow import planned


@run_command
def grow(
    config: ConfigPath,
    tm_number: Annotated[
        int,
        typer.Option(
            min=TM_NUMBER.low, max=TM_NUMBER.high, metavar="N", help="How many; ids are 0 to N - 1."
        ),
    ],
    dry_run: DryRun = False,
) -> None:
    """Set how many TaskManagers may take part in the job, without a restart of any daemon.

    Takes effect at once, and stays in effect when the JobManager restarts. The command does not
    start TaskManagers. The limit is the larger of this number and tm_number in the JobManager's
    config.yaml. A smaller number is refused while a TaskManager with a larger id is up.

    Exit codes: 0 done, 2 wrong arguments, or such a TaskManager is up, 3 Kafka does not answer.
    """
    change = planned(load_config(config), tm_number)
    typer.echo(f"TaskManagers: {change.before} before, {change.number} now")
    if not dry_run:
        change.carry_out()
        typer.echo(f"done: ids 0 to {change.number - 1} may take part")

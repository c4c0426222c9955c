"""`python -m kafka_pipeline.admin.quickstart`: what quickstart.sh runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kafka_pipeline.admin.quickstart.display import run_shown
from kafka_pipeline.admin.quickstart.local_run import RunOptions
from kafka_pipeline.admin.quickstart.run import run
from kafka_pipeline.common.process.cli import run_command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@run_command
def quickstart(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave Kafka running at the end, to look around in it.")
    ] = False,
    no_kill: Annotated[
        bool, typer.Option("--no-kill", help="Do not kill a TaskManager half-way.")
    ] = False,
) -> None:
    """Count the flights of 2013 by airport on two TaskManagers, kill one, check every result.

    Starts a real Kafka on free ports, the TaskManagers and the JobManager, and stops them at the
    end. Takes about half a minute, and some more the first time. Exit codes: 0 everything is
    right, 1 it is not, 3 something needed is missing.
    """
    run_shown(partial(run, RunOptions(kill=not no_kill, keep=keep)))


if __name__ == "__main__":
    app(prog_name="quickstart.sh")

"""`python -m examples.flights`: what run.sh runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from admin.quickstart.display import Display
from admin.signals import Interrupted, Signals
from common.cli import run_command
from examples.flights.run import Options, run

_PIPE_WIDTH = 120

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@run_command
def flights(
    days: Annotated[
        int | None, typer.Option(min=1, max=365, help="Take only the first days of 2013.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave Kafka running at the end, to look around in it.")
    ] = False,
    no_kill: Annotated[
        bool, typer.Option("--no-kill", help="Do not kill a TaskManager half-way.")
    ] = False,
) -> None:
    """Join and aggregate the flights of 2013 on two TaskManagers, kill one, ask pandas.

    Starts a real Kafka on free ports, the TaskManagers and the JobManager, and stops them at the
    end. Exit codes: 0 everything is right, 1 it is not, 3 something needed is missing.
    """
    signals = Signals()
    signals.install()
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PIPE_WIDTH)
    try:
        with Display(console) as display:
            is_right = run(Options(not no_kill, keep, days), display, signals)
    except Interrupted as interruption:
        raise SystemExit(128 + interruption.number) from None
    if not is_right:
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="run.sh")

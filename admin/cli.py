"""The `pipeline` command line."""

from __future__ import annotations

import typer

from admin.broker.command import broker_app
from admin.commands.backfill import backfill
from admin.commands.describe import describe
from admin.commands.init import init
from admin.commands.schema import schema
from admin.commands.status import status
from admin.commands.test import test
from admin.commands.validate import validate
from common import logs

app = typer.Typer(
    help="Make, check, describe and watch a pipeline.",
    no_args_is_help=True,
    add_completion=False,
    # An unexpected error shows Python's own traceback, without the values of variables.
    pretty_exceptions_enable=False,
)
for command in (init, validate, describe, schema, test, status, backfill):
    app.command()(command)
app.add_typer(broker_app, name="broker")


@app.callback()
def _common() -> None:
    # A command prints its answer; of the log, only warnings and errors are shown.
    logs.configure("console", "warning")


def main() -> None:
    """Run the command that the process arguments name."""
    app()

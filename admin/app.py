"""The `pipeline` command line."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from admin.broker.command import broker_app
from admin.commands.acls import acls
from admin.commands.apply import apply, rollback
from admin.commands.backfill import backfill
from admin.commands.describe import describe
from admin.commands.dev import dev
from admin.commands.dlq import dlq_app
from admin.commands.grow import grow
from admin.commands.init import init
from admin.commands.pause import drain, pause, restart, resume
from admin.commands.plan import plan
from admin.commands.rescale import rescale
from admin.commands.reset import reset
from admin.commands.savepoint import savepoint_app
from admin.commands.schema import schema
from admin.commands.sign import sign
from admin.commands.state import state_app
from admin.commands.status import status
from admin.commands.test import test
from admin.commands.top import top
from admin.commands.topic import topic_app
from admin.commands.topics import topics
from admin.commands.transactions import transactions_app
from admin.commands.validate import validate
from admin.commands.versions import versions
from common import logs

app = typer.Typer(
    help="Make, check, deploy and watch a pipeline.",
    no_args_is_help=True,
    add_completion=False,
    # An unexpected error shows Python's own traceback, without the values of variables.
    pretty_exceptions_enable=False,
)
COMMANDS = (
    *(init, dev, validate, describe, schema, test, backfill),
    *(plan, apply, rollback, versions, pause, drain, resume, restart, reset, rescale, grow),
    *(sign, topics, acls, status, top),
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(dlq_app, name="dlq")
app.add_typer(topic_app, name="topic")
app.add_typer(savepoint_app, name="savepoint")
app.add_typer(transactions_app, name="transactions")
app.add_typer(state_app, name="state")
app.add_typer(broker_app, name="broker")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(version("kafka-pipeline"))
        raise typer.Exit


@app.callback()
def _common(
    _is_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    # A command prints its answer; of the log, only warnings and errors are shown.
    logs.configure("console", "warning")

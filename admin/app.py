"""The `pipeline` command line."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from kafka_pipeline.admin.broker.command import broker_app
from kafka_pipeline.admin.commands.acls import acls
from kafka_pipeline.admin.commands.apply import apply, rollback
from kafka_pipeline.admin.commands.backfill import backfill
from kafka_pipeline.admin.commands.describe import describe
from kafka_pipeline.admin.commands.dev import dev
from kafka_pipeline.admin.commands.dlq import dlq_app
from kafka_pipeline.admin.commands.grow import grow
from kafka_pipeline.admin.commands.init import init
from kafka_pipeline.admin.commands.pause import drain, pause, restart, resume
from kafka_pipeline.admin.commands.plan import plan
from kafka_pipeline.admin.commands.rescale import rescale
from kafka_pipeline.admin.commands.reset import reset
from kafka_pipeline.admin.commands.savepoint import savepoint_app
from kafka_pipeline.admin.commands.schema import schema
from kafka_pipeline.admin.commands.sign import sign
from kafka_pipeline.admin.commands.state import state_app
from kafka_pipeline.admin.commands.status import status
from kafka_pipeline.admin.commands.test import test
from kafka_pipeline.admin.commands.top import top
from kafka_pipeline.admin.commands.topic import topic_app
from kafka_pipeline.admin.commands.topics import topics
from kafka_pipeline.admin.commands.transactions import transactions_app
from kafka_pipeline.admin.commands.validate import validate
from kafka_pipeline.admin.commands.versions import versions
from kafka_pipeline.common import logs

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

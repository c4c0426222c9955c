"""The `pipeline` command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, NamedTuple

import typer

from kafka_pipeline.common.engine_version import RUNNING_VERSION
from kafka_pipeline.common.monitoring import logs


class Command(NamedTuple):
    """Where a command is, as `module:name` below `kafka_pipeline.admin`, and what it does."""

    place: str
    help: str


COMMANDS: Mapping[str, Command] = {
    "init": Command(
        "commands.init:init",
        "Write a sample config.yaml and pipeline.yaml, and the schemas with which editors "
        "check them.",
    ),
    "dev": Command(
        "commands.dev:dev",
        "Run a pipeline on this machine, and apply what you save, until Ctrl-C.",
    ),
    "validate": Command(
        "commands.validate:validate",
        "Check both files and report every mistake with its line and column.",
    ),
    "describe": Command(
        "commands.describe:describe",
        "Show the graph, the topics and the tasks that the two files make.",
    ),
    "schema": Command(
        "commands.schema:schema",
        "Print the JSON Schema of config.yaml or pipeline.yaml, for editors.",
    ),
    "test": Command(
        "commands.test:test",
        "Run a pipeline without Kafka, and compare with what YAML suites expect.",
    ),
    "backfill": Command(
        "commands.backfill:backfill",
        "Run a pipeline over history, as a batch job on Spark; continues where it was interrupted.",
    ),
    "plan": Command(
        "commands.plan:plan",
        "Show what would change if the job ran this pipeline: tasks, topics and state.",
    ),
    "rehearse": Command(
        "commands.rehearse:rehearse",
        "Run a new version in shadow next to the job, on the same records, and compare the "
        "results.",
    ),
    "apply": Command(
        "commands.apply:apply",
        "Make this the pipeline of the job, while unchanged processors keep running.",
    ),
    "rollback": Command(
        "commands.apply:rollback",
        "Make a former version the pipeline of the job again, as a new version.",
    ),
    "versions": Command(
        "commands.versions:versions",
        "List the versions of the job's pipeline: which one runs, when each was made, and by whom.",
    ),
    "pause": Command(
        "commands.pause:pause",
        "Stop processors or tasks until they are resumed; the daemons may be restarted meanwhile.",
    ),
    "drain": Command(
        "commands.pause:drain",
        "Stop reading sources, process the records that are in the pipeline, and stop, until "
        "resumed.",
    ),
    "resume": Command(
        "commands.pause:resume",
        "Resume paused processors or tasks where they stopped. Ends once they run.",
    ),
    "restart": Command(
        "commands.pause:restart",
        "Restart tasks, or all tasks of a processor, including FAILED ones. Ends once they run.",
    ),
    "reset": Command(
        "commands.reset:reset",
        "Set the committed offsets of processors, for all their inputs, while they are paused.",
    ),
    "rescale": Command(
        "commands.rescale:rescale",
        "Give a job another parallelism: drain it, make a savepoint, and restore that by key.",
    ),
    "grow": Command(
        "commands.grow:grow",
        "Set how many TaskManagers may take part in the job, without a restart of any daemon.",
    ),
    "sign": Command(
        "commands.sign:sign",
        "Sign the job's pipeline and desired state with the first key of control_key_file.",
    ),
    "topics": Command(
        "commands.topics:topics",
        "List the topics of the job that exist, with their numbers of partitions.",
    ),
    "acls": Command(
        "commands.acls:acls",
        "Write out the ACLs with which JobManager, TaskManagers and people can work with a job.",
    ),
    "status": Command(
        "commands.status:status",
        "Show the daemons and tasks, as of the last heartbeats, or wait for a state.",
    ),
    "top": Command(
        "commands.top:top",
        "Show rates and lag by processor and by task, the furthest behind first, until Ctrl-C.",
    ),
    "dlq": Command("commands.dlq:dlq_app", "Look at dead letters, and deal with them."),
    "topic": Command(
        "commands.topic:topic_app", "Make and change topics, read their records, and write some."
    ),
    "savepoint": Command(
        "commands.savepoint:savepoint_app",
        "Keep all that a job knows in files, and bring it back.",
    ),
    "transactions": Command(
        "commands.transactions:transactions_app",
        "Look at transactions that stay open, and abort those that tasks have left.",
    ),
    "table": Command("commands.table:table_app", "Take care of the tables that processors write."),
    "state": Command(
        "commands.state:state_app",
        "Look up the state of a running job: what its tasks have committed.",
    ),
    "broker": Command(
        "broker.command:broker_app",
        "Run a real Kafka on this machine, for trying things out.",
    ),
}
"""The commands, in the order of the help. The modules of all of them take most of a second."""


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the command line for the words of a process: it can run what the first one names.

    Otherwise, it lists all commands, for the help and for suggestions.
    """
    first = next((word for word in words if not word.startswith("-")), "")
    if first in COMMANDS:
        return app_with([first])
    app = _empty_app()
    for name, command in COMMANDS.items():
        app.command(name, help=command.help)(_print_nothing)
    return app


def app_with(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the command line with these commands only."""
    app = _empty_app()
    for name in names:
        module, _, attribute = COMMANDS[name].place.partition(":")
        found = getattr(import_module(f"kafka_pipeline.admin.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _print_nothing() -> None:
    """Do nothing: the help only lists the command."""


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(RUNNING_VERSION)
        raise typer.Exit


def _empty_app() -> typer.Typer:
    app = typer.Typer(
        help="Make, check, deploy and watch a pipeline.",
        no_args_is_help=True,
        add_completion=False,
        # An unexpected error shows Python's own traceback, without the values of variables.
        pretty_exceptions_enable=False,
    )
    app.callback()(_common)
    return app


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

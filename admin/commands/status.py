"""`pipeline status`: shows how a running pipeline does, or waits until it is as it should be."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import AsJson, ConfigPath
from kafka_pipeline.admin.status import as_json as json_of
from kafka_pipeline.admin.status import overview, watch_status
from kafka_pipeline.admin.terminal import say_progress, show
from kafka_pipeline.common.cluster.conditions import Condition
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.printable import LAYOUT, printable
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment.desired_state import why_stopped
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.cluster_watcher import read_status
from kafka_pipeline.operations.waiting import wait_for


@run_command
def status(
    config: ConfigPath,
    as_json: AsJson = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Refresh it all the time, until Ctrl-C; into a pipe or a file, show it once.",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Show nothing, and end once the job is as --for says.")
    ] = False,
    for_: Annotated[
        Condition | None,
        typer.Option(
            "--for",
            help="With --wait: all daemons are up and all tasks run (the default); the same, and "
            "all input is processed; all tasks are paused; no daemon is up.",
        ),
    ] = None,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="With --wait: how long; forever by default. 0 checks the state now.",
        ),
    ] = None,
) -> None:
    """Show the daemons and tasks, as of the last heartbeats, or wait for a state.

    With --wait, lines on stderr say what is still missing. Paused tasks do not keep a job from
    being `running`.

    Exit codes: 0 whatever the status is, or the state was reached, 1 with --wait: a task is FAILED,
    2 wrong argument or file, 3 Kafka does not answer, or time is up.
    """
    if watch + wait + as_json > 1:
        raise ConfigError("--watch, --wait and --json exclude each other")
    if not wait and (for_ is not None or timeout_s is not None):
        raise ConfigError("--for and --timeout say what --wait waits for: give it too")
    settings = load_config(config)
    if wait:
        condition = for_ or Condition.RUNNING
        wait_for(settings, condition, timeout_s, say_progress)
        typer.echo(f"the job is {condition}")
        return
    if watch and sys.stdout.isatty():
        watch_status(settings, overview)
        return
    found = read_status(settings)
    if as_json:
        typer.echo(json_of(found))
        return
    show(overview(found))
    if found.tasks and all(info.is_held for info in found.tasks):
        wish = read_deployment(settings, connected(settings)).wish
        if why := why_stopped(wish):
            typer.echo(f"\n{printable(why, LAYOUT)}")

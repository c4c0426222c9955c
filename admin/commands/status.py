"""`pipeline status`: shows how a running pipeline does."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import AsJson, ConfigPath
from kafka_pipeline.admin.status import as_json as json_of
from kafka_pipeline.admin.status import overview, watch_status
from kafka_pipeline.admin.terminal import show
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.operations.cluster_watcher import read_status


@run_command
def status(
    config: ConfigPath,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh it all the time, until Ctrl-C.")
    ] = False,
) -> None:
    """Show who is there and how the tasks do, by the last heartbeats.

    Exit codes: 0 whatever the status is, 2 wrong argument or file, 3 Kafka is not there.
    """
    settings = load_config(config)
    if watch and as_json:
        raise ConfigError("--watch shows the status to people: leave --json out")
    if watch:
        watch_status(settings, overview)
        return
    found = read_status(settings)
    if as_json:
        typer.echo(json_of(found))
    else:
        show(overview(found))

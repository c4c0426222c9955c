"""The `jobmanager` command: its arguments, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.common import logs
from kafka_pipeline.common.cli import run_command
from kafka_pipeline.common.config import load_config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.monitoring.monitoring import Monitoring
from kafka_pipeline.common.open_files import raise_limit
from kafka_pipeline.common.secret_files import warn_of_readable_secrets
from kafka_pipeline.console.server import running_console
from kafka_pipeline.jobmanager.daemon import JobManagerDaemon
from kafka_pipeline.jobmanager.deploy import Proposal, deploy
from kafka_pipeline.jobmanager.prepare import prepared
from kafka_pipeline.streams.pipeline.load import load_pipeline

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@run_command
def jobmanager(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Path of config.yaml.")],
    pipeline: Annotated[
        Path | None,
        typer.Argument(
            metavar="PIPELINE",
            help="Path of pipeline.yaml. Without it, the job goes on with the version that it has.",
        ),
    ] = None,
    allow_removal: Annotated[
        bool,
        typer.Option(
            "--allow-removal",
            help="Take away from the pipeline that runs what PIPELINE does not have.",
        ),
    ] = False,
) -> None:
    """Run the JobManager: it creates the topics and balances the pipeline over TaskManagers.

    If the job runs another pipeline, PIPELINE may add to it and edit it; it refuses to take
    anything away. When it ends (SIGTERM, Ctrl-C) the pipeline keeps running; the next JobManager
    adopts what runs.
    Exit codes: 0 stopped, 2 wrong argument, file or topic, 3 Kafka is not there or
    metrics_port is taken, 4 another JobManager took over.
    """
    settings = load_config(config)
    loaded = load_pipeline(pipeline, settings) if pipeline else None
    logs.configure_as(settings)
    warn_of_readable_secrets(config, settings)
    raise_limit()
    monitoring = Monitoring(settings)
    with running_console(settings) as console:
        admin = Admin(settings)
        admin.check_broker()
        if pipeline is not None and loaded is not None:
            proposal = Proposal(prepared(loaded, settings, admin), pipeline.read_text("utf-8"))
            deploy(proposal, settings, admin, agreed=None if allow_removal else ())
        JobManagerDaemon(settings, admin, context.obj, monitoring, console).run()

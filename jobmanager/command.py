"""The `jobmanager` command: its arguments, how it ends, and the daemon with its console."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.config.registry_settings import require_shared
from kafka_pipeline.common.config.secret_files import warn_of_readable_secrets
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.setting_problem import setting_problem
from kafka_pipeline.common.monitoring import logs
from kafka_pipeline.common.monitoring.monitoring import Monitoring
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.process.heap import trimmed_heap
from kafka_pipeline.common.process.open_files import raise_limit
from kafka_pipeline.console.server import running_console
from kafka_pipeline.jobmanager.daemon import JobManagerDaemon
from kafka_pipeline.jobmanager.start import StartFile

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
            help="Path of pipeline.yaml. Without it, the job keeps its current version.",
        ),
    ] = None,
    allow_removal: Annotated[
        bool,
        typer.Option(
            "--allow-removal",
            help="Remove from the running pipeline what PIPELINE does not have.",
        ),
    ] = False,
) -> None:
    """Run the JobManager: it creates the topics and balances the pipeline over TaskManagers.

    If the job runs another pipeline, PIPELINE may add to it and edit it. A PIPELINE that removes
    anything, or that has mistakes, is not used: an error is logged, and the job keeps running its
    current version. When the JobManager ends (SIGTERM, Ctrl-C, SIGHUP), the pipeline keeps running;
    the next JobManager adopts the running tasks.
    Exit codes: 0 stopped, 2 wrong argument or config.yaml, or the job runs nothing yet and PIPELINE
    or a topic is wrong, 3 Kafka is not there or metrics_port is taken, 4 another JobManager took
    over.
    """
    settings = load_config(config, setting_problem)
    require_shared(settings.schema_registry)
    agreed = None if allow_removal else ()
    file = StartFile(pipeline, settings, agreed) if pipeline else None
    logs.configure_as(settings)
    warn_of_readable_secrets(config, settings)
    raise_limit()
    monitoring = Monitoring(settings)
    with running_console(settings) as console, trimmed_heap():
        admin = Admin(settings)
        if file is None:
            admin.check_broker()
        refused = file.deploy(admin) if file else None
        JobManagerDaemon(settings, admin, context.obj, monitoring, console, refused).run()

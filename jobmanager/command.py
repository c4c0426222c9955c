"""The `jobmanager` command: its arguments, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from common import logs
from common.cli import run_command
from common.config import load_config
from common.open_files import raise_limit
from jobmanager.daemon import JobManagerDaemon
from streams.pipeline.load import load_pipeline

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
@run_command
def jobmanager(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Path of config.yaml.")],
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE", help="Path of pipeline.yaml.")],
) -> None:
    """Run the JobManager: it creates the topics and balances the pipeline over TaskManagers.

    When it ends (SIGTERM, Ctrl-C) the pipeline keeps running; the next JobManager adopts what runs.
    Exit codes: 0 stopped, 2 wrong argument, file or topic, 3 Kafka is not there, 4 another
    JobManager took over.
    """
    settings = load_config(config)
    loaded = load_pipeline(pipeline, settings)
    logs.configure(settings.log_format, settings.log_level, settings.modules)
    raise_limit()
    JobManagerDaemon(settings, loaded, context.obj).run()

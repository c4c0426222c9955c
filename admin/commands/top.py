"""`pipeline top`: shows which processors and tasks are busy, and which ones fall behind."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath
from kafka_pipeline.admin.status import watch_status
from kafka_pipeline.admin.terminal import show
from kafka_pipeline.admin.top import TopView, read_top
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.process.cli import run_command


@run_command
def top(
    config: ConfigPath,
    once: Annotated[
        bool, typer.Option("--once", help="Print one view, as into a pipe or a file.")
    ] = False,
) -> None:
    """Show rates and lag by processor and by task, the furthest behind first, until Ctrl-C.

    Exit codes: 0 whatever the rates are, 2 wrong argument or file, 3 Kafka does not answer.
    """
    settings = load_config(config)
    if once or not sys.stdout.isatty():
        show(read_top(settings))
    else:
        watch_status(settings, TopView(True, settings.heartbeat_interval_ms).update)

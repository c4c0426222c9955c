"""`pipeline describe`: shows what the two files make."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, PipelinePath
from kafka_pipeline.admin.describe import mermaid, overview
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.terminal import show
from kafka_pipeline.common.process.cli import run_command


@run_command
def describe(
    config: ConfigPath,
    pipeline: PipelinePath,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead.")
    ] = False,
) -> None:
    """Show the graph, the topics and the tasks that the two files make."""
    settings, loaded = load_files(config, pipeline)
    if as_mermaid:
        typer.echo(mermaid(loaded))
    else:
        show(overview(settings, loaded))

"""`pipeline plan`: shows what a pipeline.yaml would change about a job, and changes nothing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from admin.changes import look_at
from admin.files import ConfigPath, PipelinePath, load_files
from admin.plans import overview
from admin.terminal import show
from common.cli import run_command
from operations.job import connected


@run_command
def plan(
    config: ConfigPath,
    pipeline: PipelinePath,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
) -> None:
    """Show what would change if the job ran this pipeline: tasks, topics and state.

    Exit codes: 0 whatever would change, 2 the pipeline cannot run in this job, 3 Kafka is not
    there.
    """
    settings, loaded = load_files(config, pipeline)
    _, found, deployment = look_at(settings, connected(settings), loaded)
    if as_json:
        current = deployment.current.number if deployment.current else None
        typer.echo(json.dumps({"version": current, **found.to_json()}, indent=2))
    else:
        show(overview(found, deployment.current))

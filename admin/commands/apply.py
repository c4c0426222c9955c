"""`pipeline apply` and `pipeline rollback`: have a job run another version of its pipeline."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, PipelinePath
from kafka_pipeline.admin.changes import Wanted, change
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.common.cli import run_command
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.operations.job import connected, read_deployment

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, whatever is taken away.")]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Whether to wait until all tasks run.")
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="How long to wait; forever by default."),
]


@run_command
def apply(
    config: ConfigPath,
    pipeline: PipelinePath,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Wait = True,
    timeout_s: Timeout = None,
) -> None:
    """Make this the pipeline of the job, while all that stays the same runs on.

    Shows what changes, asks if something is taken away, writes a new version, and follows how the
    JobManager brings it about. Records between processors that are taken away are processed first.
    Interrupting the command does not stop the change.

    Exit codes: 0 done, 1 a task failed, or the answer was no, 2 the pipeline cannot run in this
    job, 3 Kafka is not there, or time is up.
    """
    settings, loaded = load_files(config, pipeline)
    wanted = Wanted(dry_run, yes, wait, timeout_s)
    change(settings, loaded, pipeline.read_text("utf-8"), wanted)


@run_command
def rollback(
    config: ConfigPath,
    to: Annotated[
        int | None,
        typer.Option(min=1, metavar="VERSION", help="By default, the one before the current one."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Wait = True,
    timeout_s: Timeout = None,
) -> None:
    """Make a former version the pipeline of the job again, as a new version.

    State is not taken back: a processor goes on with what it has, and one that was gone in between
    goes on where it stopped. Otherwise, this does what `pipeline apply` does.
    """
    settings = load_config(config)
    deployment = read_deployment(settings, connected(settings))
    numbers = deployment.numbers
    wish = deployment.wish
    if wish is None:
        raise ConfigError("this job has no pipeline yet: there is nothing to go back to")
    before = [number for number in numbers if number < (wish.next or wish.version)]
    wanted = to or max(before, default=0)
    if wanted not in numbers:
        has = f"versions {numbers[0]} to {numbers[-1]}"
        raise ConfigError(
            f"this job has no version {wanted or 'before the first one'}: it has {has}"
        )
    version = deployment.version(wanted)
    change(settings, version.pipeline, version.text, Wanted(dry_run, yes, wait, timeout_s))

"""`pipeline apply` and `pipeline rollback`: have a job run another version of its pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, PipelinePath
from kafka_pipeline.admin.commands.apply_rebuild import apply_and_rebuild
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.plans import overview
from kafka_pipeline.admin.terminal import require_consent, show
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment.deploy import Proposal, deploy, look_at
from kafka_pipeline.deployment.desired_state import is_restoring
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.following import follow

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, whatever is taken away.")]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Whether to wait until all tasks run.")
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="How long to wait; forever by default."),
]

_REST_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How a change is to be made: whether only to show it, to ask, and to wait for it."""

    dry_run: bool
    yes: bool
    wait: bool
    timeout_s: float | None


@run_command
def apply(
    config: ConfigPath,
    pipeline: PipelinePath,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Wait = True,
    timeout_s: Timeout = None,
    rebuild: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Compute this processor's state again from its sources."),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Only of records of this time or later, as 2026-01-31."
        ),
    ] = None,
) -> None:
    """Make this the pipeline of the job, while all that stays the same runs on.

    Shows what changes, asks if something is taken away, writes a new version, and follows how the
    JobManager brings it about. Records between processors that are taken away are processed first.
    Interrupting the command does not stop the change.

    With --rebuild, the new code first computes the state of a processor from the records that its
    sources still have, while the job runs on. The job is then stopped for the switch. Repeat the
    command if it was interrupted.

    Exit codes: 0 done, 1 a task failed, or one that has failed holds the change up, or the answer
    was no, 2 the pipeline cannot run in this job, 3 Kafka is not there, or time is up.
    """
    settings, loaded = load_files(config, pipeline)
    text = pipeline.read_text("utf-8")
    if rebuild is not None:
        options = {"dry_run": dry_run, "yes": yes, "wait": wait}
        apply_and_rebuild(settings, loaded, text, rebuild, from_, timeout_s=timeout_s, **options)
        return
    if from_ is not None:
        raise ConfigError("--from goes with --rebuild")
    _change(settings, loaded, text, _Wanted(dry_run, yes, wait, timeout_s))


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
    _change(settings, version.pipeline, version.text, _Wanted(dry_run, yes, wait, timeout_s))


def _change(config: Config, pipeline: Pipeline, text: str, wanted: _Wanted) -> None:
    """Show what changes, ask if something is taken away, make the change, and follow it."""
    admin = connected(config)
    complete, found, deployment = look_at(config, admin, pipeline)
    show(overview(found, deployment.current))
    if deployment.coming is not None:
        waits = f"version {deployment.coming.number} does not run yet"
        typer.echo(f"{waits}: this takes its place, and is compared with what runs until then")
    if wanted.dry_run:
        return
    if complete.renames and (found.renamed or is_restoring(deployment.wish)):
        require_consent("Stop the job, and rename these processors?", yes=wanted.yes)
        number = _rename(config, admin, Proposal(complete, text))
        follow(config, admin, number, wanted.timeout_s, typer.echo)
        return
    if found.losses:
        require_consent("Take this away from the pipeline that runs?", yes=wanted.yes)
    number = deploy(Proposal(complete, text), config, admin, agreed=found.losses)
    if wanted.wait:
        follow(config, admin, number, wanted.timeout_s, typer.echo)
    else:
        typer.echo(f"version {number} is the pipeline of the job")


def _rename(config: Config, admin: Admin, proposal: Proposal) -> int:
    """Take state and offsets along to other ids; return the version that runs then.

    Raises as `Rebuild.carry_out`.
    """
    from kafka_pipeline.operations.savepoints.rebuild import Rebuild  # starts slowly

    # The name is the same when the command is repeated.
    ids = "-".join(sorted(proposal.pipeline.renames))
    folder = Path(f"rename-{config.job_name or 'job'}-{ids}")
    rebuild = Rebuild(config, admin, folder, lambda line: typer.echo(line, err=True))
    number = rebuild.carry_out(proposal, _REST_TIMEOUT_S, drains=False)
    typer.echo(f"{folder} is a savepoint of the job as it was before")
    return number

"""`pipeline apply --rebuild`: makes a pipeline that of the job, with a state computed again."""

from __future__ import annotations

import typer
from rich.console import Console

from kafka_pipeline.admin.arguments import time_of
from kafka_pipeline.admin.plans import overview
from kafka_pipeline.admin.precautions import REST_TIMEOUT_S
from kafka_pipeline.admin.terminal import require_consent, say, say_progress, show
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.deploy import Proposal, look_at, require_usable_state
from kafka_pipeline.deployment.job import connected
from kafka_pipeline.deployment.kept_state import KeptState
from kafka_pipeline.deployment.plan import processors_with_state
from kafka_pipeline.operations.following import follow


def apply_and_rebuild(
    config: Config,
    pipeline: Pipeline,
    text: str,
    entry: str,
    since: str | None,
    *,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Show what is to be done, ask, do it, and `wait` until all tasks run.

    `since` is the time of the first record to take. Raises as `StateRebuild.carry_out`.
    """
    # These start slowly, and only this needs them.
    from kafka_pipeline.operations.savepoints.state_rebuild import StateRebuild
    from kafka_pipeline.streams.backfill.spark_jobs import BoundedJobs

    admin = connected(config)
    kept, rebuilt = KeptState(config, admin), processors_with_state(pipeline, [entry])
    complete, found, deployment = look_at(config, admin, pipeline, kept, rebuilt=rebuilt)
    show(overview(found, deployment.current, text))
    require_usable_state(found)
    # The name is the same when the command is repeated.
    folder = config.savepoint_dir / f"rebuild-{config.job_name or 'job'}-{entry}"
    rebuild = StateRebuild(
        config,
        admin,
        folder,
        Proposal(complete, text),
        entry,
        None if since is None else time_of("--from", since),
        say_progress,
    )
    for line in rebuild.lines():
        typer.echo(line)
    if dry_run:
        return
    require_consent("Compute this state, and then stop the job to switch to it?", yes=yes)
    jobs = BoundedJobs(config)
    try:
        number = rebuild.carry_out(REST_TIMEOUT_S, jobs, Console(stderr=True))
    finally:
        jobs.stop()
    typer.echo(f"{folder} is a savepoint of the job as it was before")
    if wait:
        follow(config, admin, number, timeout_s, say)
    else:
        typer.echo(f"version {number} is the pipeline of the job")

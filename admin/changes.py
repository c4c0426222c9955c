"""Changes of what a job runs: looked at, agreed to, made, and followed until they are done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from kafka_pipeline.admin.consent import require_consent
from kafka_pipeline.admin.following import follow
from kafka_pipeline.admin.plans import overview
from kafka_pipeline.admin.terminal import show
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.deployment import Deployment, is_restoring
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.jobmanager.deploy import Proposal, deploy, plan_for
from kafka_pipeline.jobmanager.plan import Plan
from kafka_pipeline.jobmanager.prepare import prepared
from kafka_pipeline.operations.job import connected, read_deployment

_REST_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a change is to be made: whether only to show it, to ask, and to wait for it."""

    dry_run: bool
    yes: bool
    wait: bool
    timeout_s: float | None


def look_at(config: Config, admin: Admin, pipeline: Pipeline) -> tuple[Pipeline, Plan, Deployment]:
    """Return a pipeline as `prepared`, what would change if the job ran it, and what it runs."""
    complete = prepared(pipeline, config, admin)
    deployment = read_deployment(config, admin)
    return complete, plan_for(complete, deployment, admin), deployment


def change(config: Config, pipeline: Pipeline, text: str, wanted: Wanted) -> None:
    """Show what changes, ask if something is taken away, make the change, and follow it."""
    admin = connected(config)
    complete, found, deployment = look_at(config, admin, pipeline)
    show(overview(found, deployment.current))
    if wanted.dry_run:
        return
    if complete.renames and (found.renamed or is_restoring(deployment.wish)):
        require_consent("Stop the job, and rename these processors?", yes=wanted.yes)
        number = _rename(config, admin, Proposal(complete, text))
        follow(config, admin, number, wanted.timeout_s)
        return
    if found.losses:
        require_consent("Take this away from the pipeline that runs?", yes=wanted.yes)
    number = deploy(Proposal(complete, text), config, admin, agreed=found.losses)
    if wanted.wait:
        follow(config, admin, number, wanted.timeout_s)
    else:
        typer.echo(f"version {number} is the pipeline of the job")


def _rename(config: Config, admin: Admin, proposal: Proposal) -> int:
    """Take state and offsets along to other ids; return the version that runs then.

    Raises as `Rebuild.carry_out`.
    """
    from kafka_pipeline.admin.savepoints.rebuild import Rebuild  # starts slowly

    # The name is the same when the command is repeated.
    ids = "-".join(sorted(proposal.pipeline.renames))
    folder = Path(f"rename-{config.job_name or 'job'}-{ids}")
    rebuild = Rebuild(config, admin, folder, lambda line: typer.echo(line, err=True))
    number = rebuild.carry_out(proposal, _REST_TIMEOUT_S, drains=False)
    typer.echo(f"{folder} is a savepoint of the job as it was before")
    return number

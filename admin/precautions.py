"""What `pipeline apply` does so that there is a way back from state in another format."""

from __future__ import annotations

import socket
from itertools import chain, count

import typer

from kafka_pipeline.admin.signals import orderly_end
from kafka_pipeline.admin.terminal import say_progress
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.desired_state import Deployment, is_same
from kafka_pipeline.deployment.other_code import other_code
from kafka_pipeline.deployment.plan import Plan
from kafka_pipeline.deployment.store_contents import StateEffect

REST_TIMEOUT_S = 300.0
"""How long commands wait for the tasks of a job to rest, unless an option says otherwise."""


def state_changes(deployment: Deployment, after: Pipeline, found: Plan) -> list[str]:
    """Return lines about state whose format may change if this pipeline runs.

    There are none for what the job runs, or is to run, already.
    """
    current, newest = deployment.current, deployment.newest
    if current is None or newest is None or is_same(newest.pipeline, after):
        return []
    reasons = other_code(current.pipeline, after)
    for store in found.stores:
        if store.effect in (StateEffect.CONVERTED, StateEffect.UNCHECKED):
            reasons.setdefault(store.processor, store.reason)
    return [f'the format of the state of "{id_}" may change: {why}' for id_, why in reasons.items()]


def former_savepoint(deployment: Deployment) -> list[str]:
    """Return a line about the savepoint that was made before the current version, if there is one.

    After a version was rolled back, that is the one that was made before it.
    """
    current = deployment.current
    if current is None:
        return []
    savepoint = current.takes_back.savepoint if current.takes_back else current.savepoint
    if not savepoint:
        return []
    return [
        f"{savepoint} is a savepoint of the job as it was before: if state does not fit, `pipeline "
        "savepoint restore` brings that back"
    ]


def make_savepoint(config: Config, admin: Admin, deployment: Deployment) -> str:
    """Make a savepoint of the job as it is; return its host and folder.

    Raises as `Creation.carry_out`; nothing has changed then.
    """
    from kafka_pipeline.operations.savepoints.create import Creation  # starts slowly

    name = f"apply-{config.job_name or 'job'}-version-{max(deployment.numbers) + 1}"
    # There is one already if the change could not be made after all.
    names = chain([name], map(f"{name}-{{}}".format, count(2)))
    folder = next(f for f in map(config.savepoint_dir.joinpath, names) if not f.exists())
    try:
        creation = Creation(config, admin, folder, say_progress)
        with orderly_end():  # SIGTERM must not leave the job stopped
            creation.carry_out(drains=False, timeout_s=REST_TIMEOUT_S)
    except PipelineError:
        typer.echo("nothing changes without a savepoint, unless you say --no-savepoint", err=True)
        raise
    typer.echo(f"{folder} is a savepoint of the job as it was before")
    return f"{socket.gethostname()}:{folder}"

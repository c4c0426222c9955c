"""Makes a pipeline the one that a job is to run: a new version, after a look at what it changes."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass

import structlog

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    Trial,
    Wish,
    is_same,
    require_no_stop,
)
from kafka_pipeline.deployment.job import read_deployment
from kafka_pipeline.deployment.kept_state import KeptState
from kafka_pipeline.deployment.pipeline_topic import ChangedMeanwhileError, DeploymentEditor
from kafka_pipeline.deployment.plan import Plan, plan
from kafka_pipeline.deployment.prepare import prepared

CONFIRM_WITHIN_S = 120.0
"""How long the tasks of a version may try to come up, unless somebody says otherwise."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pipeline that is to run, complete with what only Kafka knows, and its file's text.

    `savepoint` is that of `PipelineVersion`. `after` is the number of the newest version that its
    plan was made for, 0 if there was none; `None` if it may follow any.
    """

    pipeline: Pipeline
    text: str
    savepoint: str = ""
    after: int | None = None


def deploy(
    proposal: Proposal,
    config: Config,
    admin: Admin,
    agreed: Collection[str] | None,
    *,
    kept: KeptState | None = None,
    confirm_within_s: float = CONFIRM_WITHIN_S,
) -> int:
    """Have the job run a pipeline, unless it does; return the number of its version.

    If it does not come up within `confirm_within_s`, the JobManager goes back to the version that
    was confirmed last, if there is one; 0 is without a trial.

    Makes the topics that are missing. `agreed` has the losses of the plan that somebody agreed to;
    `None` agrees to any. If there are others, raises `ConfigError` that says what would be taken
    away from the pipeline that runs, and changes nothing. It does the same if a processor cannot
    use the state that it has. `kept` may remember what Spark has said about that.
    Raises `ChangedMeanwhileError` if somebody else changes the pipeline at the same time, or has
    changed it since the plan was made, and `UnavailableError` if Kafka does not answer.
    """
    number = _same_as(proposal.pipeline, read_deployment(config, admin))
    if number is not None:
        return number
    with closing(DeploymentEditor(config, admin)) as editor:
        deployment = editor.deployment
        current = deployment.current
        _require_planned(proposal, deployment)
        require_no_stop(deployment.wish)
        found = plan_for(proposal.pipeline, deployment, admin, kept or KeptState(config, admin))
        require_usable_state(found)
        if found.renamed:
            raise ConfigError(
                "processors are renamed, and their state is to be taken along: "
                f"{_listed(found.renamed)}. Only `pipeline apply` does that, while the job rests"
            )
        if agreed is not None and not set(found.losses).issubset(agreed):
            assert current is not None
            raise ConfigError(_refusal(found, current))
        topics = proposal.pipeline.data_topics(config.replication_factor)
        created = admin.ensure_topics((*control_topics(config), *topics))
        logger.info("topics are ready", created=created)
        version = new_version(deployment, proposal)
        number = version.number
        # Records that are left in arcs which go, or get others, are processed first.
        first = current.number if current and found.arcs else number
        wish = deployment.wish or Wish(version=number)
        trial = _trial(proposal.pipeline, deployment, confirm_within_s)
        editor.write(wish.of(first, number if first != number else None, trial), version)
    return number


def _require_planned(proposal: Proposal, deployment: Deployment) -> None:
    """Raise `ChangedMeanwhileError` if there is a version that the plan was not made for."""
    newest = newest_number(deployment)
    if proposal.after is None or proposal.after == newest:
        return
    raise ChangedMeanwhileError(
        f"{deployment.version(newest).made_by} made version {newest} after this change was "
        "planned, so nothing is applied: look at `pipeline plan` again, which compares with it"
    )


def newest_number(deployment: Deployment) -> int:
    """Return the number of the version that was made last; 0 if none was."""
    return max(deployment.numbers, default=0)


def _trial(pipeline: Pipeline, deployment: Deployment, within_s: float) -> Trial | None:
    """Return the trial of a new version: it goes back to the version that was confirmed last."""
    wish, current = deployment.wish, deployment.current
    if wish is None or current is None or not within_s:
        return None
    back_to = wish.trial.back_to if wish.trial else current.number
    if is_same(deployment.version(back_to).pipeline, pipeline):
        return None
    return Trial(back_to=back_to, within_ms=max(int(within_s * 1000), 1))


def new_version(deployment: Deployment, proposal: Proposal) -> PipelineVersion:
    """Return the version that a proposal becomes: the one after all that there are."""
    return PipelineVersion(
        newest_number(deployment) + 1,
        proposal.pipeline,
        proposal.text,
        wall_clock_ms(),
        who(),
        savepoint=proposal.savepoint,
    )


def plan_for(
    pipeline: Pipeline,
    deployment: Deployment,
    admin: Admin,
    kept: KeptState,
    lost: Collection[str] = (),
    rebuilt: Collection[str] = (),
) -> Plan:
    """Return what would change if a pipeline ran in place of the current one.

    `lost` are the processors whose state begins empty, and `rebuilt` those whose state is computed
    again.
    """
    before = deployment.current.pipeline if deployment.current else None
    existing = admin.topics().keys()
    verdicts = kept.verdicts(before, pipeline, existing)
    return plan(before, pipeline, existing, verdicts, lost, rebuilt)


def look_at(
    config: Config,
    admin: Admin,
    pipeline: Pipeline,
    kept: KeptState,
    lost: Collection[str] = (),
    rebuilt: Collection[str] = (),
) -> tuple[Pipeline, Plan, Deployment]:
    """Return a pipeline as `prepared`, what would change if the job ran it, and what it runs.

    `lost` and `rebuilt` are those of `plan_for`.
    """
    deployment = read_deployment(config, admin)
    current = deployment.current
    complete = prepared(pipeline, config, admin, current.pipeline if current else None)
    return complete, plan_for(complete, deployment, admin, kept, lost, rebuilt), deployment


def require_usable_state(found: Plan) -> None:
    """Raise `ConfigError` if processors cannot use their state, with what can be done about it."""
    if found.impossible:
        raise ConfigError(ways_out(found))


def ways_out(found: Plan) -> str:
    """Return why a plan is refused whose processors cannot use their state, and what to do."""
    ids = " ".join(f"--lose {id_}" for id_ in found.impossible)
    return "\n".join(
        (
            "state that the job has kept cannot be used by this pipeline, which is refused:",
            *(f'  - "{id_}": {reason}' for id_, reason in found.impossible.items()),
            "What you can do:",
            "  - go back: leave these processors as they are in the version that runs",
            "  - another id: a processor with a new id begins without state, at the oldest "
            "record of its input, and its results start again",
            *(
                f"  - `pipeline apply --rebuild {id_}`: the new version computes the state "
                "again from its sources, as far as these still have the records. Results for these "
                "records are not sent again"
                for id_ in found.impossible_entries
            ),
            f"  - `pipeline apply {ids}`: their state begins empty, and they go on in their "
            "inputs where they are. What they have kept so far is missing in all later "
            "results. The job rests meanwhile, and a savepoint of it is made",
            'See docs/how-to/change_a_pipeline.md, "Change what a processor keeps"',
        )
    )


def _same_as(pipeline: Pipeline, deployment: Deployment) -> int | None:
    wanted = deployment.newest
    if wanted is None or not is_same(wanted.pipeline, pipeline):
        return None
    return wanted.number


def _listed(renamed: Mapping[str, str]) -> str:
    return ", ".join(f'"{old}" becomes "{new}"' for new, old in renamed.items())


def _refusal(found: Plan, current: PipelineVersion) -> str:
    return "\n".join(
        (
            f"the job runs version {current.number} of its pipeline, and this file would take "
            "away from it:",
            *(f"  - {loss}" for loss in found.losses),
            "Is it the right file? `pipeline plan` shows the whole difference, `pipeline apply` "
            "makes the change; `jobmanager --allow-removal` does it at its start",
        )
    )


def who() -> str:
    """Return who does this, as a user at a host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no entry in the list of users, as in some containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"

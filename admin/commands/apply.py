"""`pipeline apply` and `pipeline rollback`: have a job run another version of its pipeline."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, DryRun, PipelinePath
from kafka_pipeline.admin.commands.apply_rebuild import apply_and_rebuild
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.plans import changed_code, overview
from kafka_pipeline.admin.precautions import (
    REST_TIMEOUT_S,
    former_savepoint,
    make_savepoint,
    state_changes,
)
from kafka_pipeline.admin.terminal import require_consent, say, say_progress, show
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment.deploy import (
    CONFIRM_WITHIN_S,
    Proposal,
    deploy,
    look_at,
    newest_number,
    require_usable_state,
)
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    is_restoring,
    is_same,
)
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.deployment.kept_state import KeptState
from kafka_pipeline.deployment.plan import Plan, processors_with_state
from kafka_pipeline.operations.following import follow

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask, whatever is removed.")]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Whether to wait until all tasks run.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0, help="How long to wait; forever by default."
    ),
]
Lose = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="Delete the state of this processor, which keeps its position in its inputs.",
    ),
]

ConfirmWithin = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="How long tasks may try to come up before the job is rolled back to its former "
        "version; 0 turns this off.",
    ),
]

CompareCode = Annotated[
    # `pipeline dev` restarts TaskManagers with new code by itself.
    bool,
    typer.Option("--compare-code/--no-compare-code", hidden=True),
]

Savepoint = Annotated[
    bool,
    typer.Option(
        "--savepoint/--no-savepoint",
        help="Whether to make a savepoint first if the format of state may change.",
    ),
]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How a change is to be made: whether only to show it, to ask, and to wait for it."""

    dry_run: bool
    yes: bool
    wait: bool
    timeout_s: float | None
    lose: Sequence[str]
    confirm_within_s: float = 0
    """How long the version is on trial; 0 is without one."""
    savepoint: bool = False
    """Whether to make a savepoint if state may get another format."""
    compare_code: bool = True
    """Whether to say which code here differs from what TaskManagers run."""


@run_command
def apply(
    config: ConfigPath,
    pipeline: PipelinePath,
    dry_run: DryRun = False,
    yes: Yes = False,
    wait: Wait = True,
    timeout_s: Timeout = None,
    lose: Lose = None,
    confirm_within: ConfirmWithin = CONFIRM_WITHIN_S,
    savepoint: Savepoint = True,
    compare_code: CompareCode = True,
    rebuild: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Compute this processor's state again from its sources."),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Only from records of this time or later: 2026-01-31."
        ),
    ] = None,
) -> None:
    """Make this the pipeline of the job, while unchanged processors keep running.

    Shows what changes, asks for confirmation if something is removed, writes a new version, and
    shows the progress of the JobManager. Records that wait for a removed processor, or that would
    be misread because serdes change, are processed first.
    If a processor could not use its state after the change, the change is refused, unless you
    --lose that state: this stops the job for a while, and must be repeated if it is interrupted.
    If the format of state may change, a savepoint is made first. The JobManager rolls back a
    version that does not come up. Interrupting the command does not stop a change that has begun,
    or its rollback.

    With --rebuild, the new code first computes the state of a processor from the records that its
    sources still have, while the job keeps running. The job is then stopped for the switch. Repeat
    the command if it was interrupted.

    Exit codes: 0 done, 1 the version was rolled back, a task failed, a FAILED task holds the change
    up, somebody else made another version meanwhile, or the answer was no, 2 the pipeline cannot
    run in this job, 3 Kafka does not answer, or time is up.
    """
    settings, loaded = load_files(config, pipeline)
    text = pipeline.read_text("utf-8")
    if rebuild is not None:
        if lose:
            raise ConfigError("--lose and --rebuild are two changes: make one after the other")
        options = {"dry_run": dry_run, "yes": yes, "wait": wait}
        apply_and_rebuild(settings, loaded, text, rebuild, from_, timeout_s=timeout_s, **options)
        return
    if from_ is not None:
        raise ConfigError("--from goes with --rebuild")
    how = (dry_run, yes, wait, timeout_s, lose or (), confirm_within, savepoint, compare_code)
    wanted = _Wanted(*how)
    _change(settings, loaded, text, wanted)


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
    lose: Lose = None,
) -> None:
    """Make a former version the pipeline of the job again, as a new version.

    State is not rolled back: a processor continues with its current state, and one that was removed
    in between continues where it stopped. Otherwise, this does the same as `pipeline apply`.
    """
    settings = load_config(config)
    deployment = read_deployment(settings, connected(settings))
    version = _former(deployment, to)
    how = _Wanted(dry_run, yes, wait, timeout_s, lose or ())
    _change(settings, version.pipeline, version.text, how)


def _former(deployment: Deployment, to: int | None) -> PipelineVersion:
    """Return the version to go back to; by default, the one before.

    Raises `ConfigError` if there is no such version.
    """
    numbers, newest = deployment.numbers, deployment.newest
    if newest is None:
        raise ConfigError("this job has no pipeline yet: there is nothing to go back to")
    # What the JobManager has gone back from is not gone back to.
    since = newest.takes_back.to if newest.takes_back else newest.number
    wanted = to or max((number for number in numbers if number < since), default=0)
    if wanted not in numbers:
        has = f"versions {numbers[0]} to {numbers[-1]}"
        raise ConfigError(
            f"this job has no version {wanted or 'before the first one'}: it has {has}"
        )
    return deployment.version(wanted)


def _change(config: Config, pipeline: Pipeline, text: str, wanted: _Wanted) -> None:
    """Show what changes, ask if something is taken away, make the change, and follow it."""
    admin = connected(config)
    kept = KeptState(config, admin)
    lose = processors_with_state(pipeline, wanted.lose)
    complete, found, deployment = look_at(config, admin, pipeline, kept, lose)
    code = changed_code(config, deployment, pipeline) if wanted.compare_code else []
    show(overview(found, deployment.current, text, code))
    if deployment.coming is not None:
        waits = f"version {deployment.coming.number} does not run yet"
        typer.echo(f"{waits}: this takes its place, and is compared with what runs until then")
    require_usable_state(found)
    changes = state_changes(deployment, complete, found)
    for line in (*changes, *former_savepoint(deployment)) if changes else ():
        typer.echo(line)
    if wanted.dry_run:
        return
    if _needs_rest(complete, found, deployment, lose):
        require_consent(_question(found), yes=wanted.yes)
        number = _change_at_rest(
            config,
            admin,
            Proposal(complete, text),
            found,
            _folder(config, complete, deployment, lose),
        )
        follow(config, admin, number, wanted.timeout_s, say)
        return
    if found.losses:
        require_consent("Take this away from the pipeline that runs?", yes=wanted.yes)
    made = make_savepoint(config, admin, deployment) if changes and wanted.savepoint else ""
    proposal = Proposal(complete, text, made, after=newest_number(deployment))
    number = deploy(
        proposal, config, admin, found.losses, kept=kept, confirm_within_s=wanted.confirm_within_s
    )
    if wanted.wait:
        follow(config, admin, number, wanted.timeout_s, say)
    else:
        typer.echo(f"version {number} is the pipeline of the job")


def _needs_rest(
    complete: Pipeline, found: Plan, deployment: Deployment, lose: Collection[str]
) -> bool:
    """Whether the change is made while the job rests, or such a change is to be completed."""
    restores, current = is_restoring(deployment.wish), deployment.current
    if lose and (restores or current is None or not is_same(current.pipeline, complete)):
        return True
    return bool(complete.renames) and (bool(found.renamed) or restores)


def _question(found: Plan) -> str:
    lines = []
    if found.losses:
        lines.append("Take this away from the pipeline that runs?")
    if found.renamed:
        lines.append("Stop the job, and rename these processors?")
    if found.lost:
        ids = ", ".join(sorted({processor for processor, _ in found.lost.stores}))
        lines.append(
            f"Stop the job, and have {ids} begin with empty state? What was kept so far is missing "
            "in all later results."
        )
    return "\n".join(lines)


def _folder(
    config: Config, pipeline: Pipeline, deployment: Deployment, lose: Collection[str]
) -> Path:
    """Return where the savepoint is: in the same place when the command is repeated."""
    job = config.job_name or "job"
    if not lose:
        return config.savepoint_dir / f"rename-{job}-{'-'.join(sorted(pipeline.renames))}"
    wish = deployment.wish
    begun = wish.version if wish is not None and is_restoring(wish) else None
    number = begun or newest_number(deployment) + 1
    return config.savepoint_dir / f"lose-{job}-{'-'.join(sorted(lose))}-{number}"


def _change_at_rest(
    config: Config, admin: Admin, proposal: Proposal, found: Plan, folder: Path
) -> int:
    """Take state and offsets along, but for what is lost; return the version that runs then.

    Raises as `ChangeAtRest.carry_out`.
    """
    from kafka_pipeline.operations.savepoints.change_at_rest import ChangeAtRest  # starts slowly

    change = ChangeAtRest(config, admin, folder, say_progress)
    # What waits in arcs that are taken away, or get other records, is processed first. So is what
    # waits for tables, which know rows by the topic that they came from.
    drains = bool(found.arcs) or _moves_tables(change.before, proposal.pipeline)
    number = change.carry_out(proposal, REST_TIMEOUT_S, drains=drains, lost=found.lost)
    typer.echo(f"{folder} is a savepoint of the job as it was before")
    return number


def _moves_tables(before: Pipeline, after: Pipeline) -> bool:
    """Whether a processor that writes a table reads another topic of the job than before."""
    new = after.arcs.keys() - before.arcs.keys()
    return any(
        each.spec.writes_outside and not new.isdisjoint(after.in_topics(each))
        for each in after.processors
    )

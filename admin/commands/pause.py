"""`pipeline pause`, `drain`, `resume` and `restart`: what is asked of a pipeline as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, DryRun
from kafka_pipeline.admin.terminal import say
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.deployment import wishes
from kafka_pipeline.deployment.job import choose, connected, read_deployment
from kafka_pipeline.operations.following import follow

Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...", help="Ids of processors, or tasks such as Counter_0; all by default."
    ),
]


@run_command
def pause(config: ConfigPath, ids: Ids = None, dry_run: DryRun = False) -> None:
    """Stop processors or tasks until they are resumed; the daemons may be restarted meanwhile.

    Their tasks commit what they have done, and stop. New records wait in Kafka. Ends once all of
    them have stopped.

    Exit codes: 0 done, 1 a change of the pipeline cannot proceed meanwhile, 2 no such id, 3 Kafka
    does not answer.
    """
    _ask_for(config, ids, "pause", wishes.paused, dry_run=dry_run)


@run_command
def drain(config: ConfigPath, dry_run: DryRun = False) -> None:
    """Stop reading sources, process the records that are in the pipeline, and stop, until resumed.

    Processors that read only sources stop first, and each other one when it has committed
    everything that was sent to it. Ends once all of them have stopped, with nothing in flight.

    Exit codes: 0 done, 1 a processor that is FAILED or paused has records left, 3 Kafka does not
    answer.
    """
    _ask_for(config, None, "drain", wishes.drained, dry_run=dry_run)


@run_command
def resume(config: ConfigPath, ids: Ids = None, dry_run: DryRun = False) -> None:
    """Resume paused processors or tasks where they stopped. Ends once they run.

    Without an id, also resumes a pipeline that was drained, or that stopped for a savepoint.

    Exit codes: 0 done, 1 a task failed, 2 no such id, 3 Kafka does not answer.
    """
    changed = wishes.resumed if ids else wishes.all_resumed
    _ask_for(config, ids, "resume", changed, dry_run=dry_run)


@run_command
def restart(config: ConfigPath, ids: Ids = None, dry_run: DryRun = False) -> None:
    """Restart tasks, or all tasks of a processor, including FAILED ones. Ends once they run.

    Exit codes: 0 done, 1 a task failed, 2 no such id, 3 Kafka does not answer.
    """
    _ask_for(config, ids, "restart", wishes.restarted, dry_run=dry_run)


def _ask_for(
    path: Path,
    ids: list[str] | None,
    what: str,
    changed: wishes.WishChange,
    *,
    dry_run: bool,
) -> None:
    """Ask something of processors or tasks, and wait until the JobManager has done it.

    All processors are meant by default. Raises `ConfigError` if there is no such processor or task.
    """
    config = load_config(path)
    admin = connected(config)
    chosen = choose(read_deployment(config, admin), ids or ())
    typer.echo(f"{what}: {', '.join(chosen.ids)}")
    if dry_run:
        return
    follow(config, admin, wishes.ask(config, admin, chosen, changed), None, say)

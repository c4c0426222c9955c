"""`pipeline topics`: lists the topics of a job, and deletes those that nobody uses, or all."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, Yes
from kafka_pipeline.admin.terminal import require_consent, show, show_json
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.job import connected, read_deployment
from kafka_pipeline.operations.orphans import delete_job, delete_orphans, orphans, whole_job


@run_command
def topics(
    config: ConfigPath,
    orphaned: Annotated[
        bool, typer.Option("--orphaned", help="Only those that former versions have left.")
    ] = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete",
            help="With --orphaned or --all: delete them, and the offsets of their readers.",
        ),
    ] = False,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All that the job has, of all versions. To delete it, stop all daemons first.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the topics of the job that exist, with their numbers of partitions.

    Sources and sinks belong to you: they are never orphaned, and never deleted.

    Exit codes: 0 done, 2 wrong arguments, 3 Kafka does not answer.
    """
    if orphaned and all_:
        raise ConfigError("give --orphaned or --all, not both")
    if delete and not orphaned and not all_:
        raise ConfigError("--delete deletes what --orphaned or --all lists: give one of them, too")
    settings = load_config(config)
    admin = connected(settings)
    deployment = read_deployment(settings, admin)
    existing = admin.topics()
    left = orphans(deployment, existing.keys())
    found = whole_job(settings, deployment, existing.keys()) if all_ else left
    listed = dict.fromkeys(left.topics, "orphaned")
    if not orphaned:
        own = deployment.current.pipeline.data_topics(1) if deployment.current else ()
        used = {spec.name: "of the pipeline" for spec in own}
        control = {spec.name: "control" for spec in control_topics(settings)}
        control[settings.topic_names.rehearsal] = "rehearsal"
        listed = {
            name: kind for name, kind in {**used, **control}.items() if name in existing
        } | listed
    if as_json:
        rows = [
            {"topic": name, "kind": kind, "partitions": existing[name]}
            for name, kind in listed.items()
        ]
        show_json(rows)
    else:
        table = Table("topic", "kind", "partitions")
        for name, kind in listed.items():
            table.add_row(name, kind, str(existing[name]))
        show(table)
    if not delete or not (found.topics or found.groups):
        return
    what = f"{counted(len(found.topics), 'topic')} and the offsets of {len(found.groups)}"
    if all_:
        require_consent(f"Delete the job: {what} processors, state included?", yes=yes)
        delete_job(settings, admin, found)
    else:
        require_consent(f"Delete {what} former processors, state included?", yes=yes)
        delete_orphans(admin, found)

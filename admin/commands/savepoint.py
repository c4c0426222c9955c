"""`pipeline savepoint`: makes savepoints of a job, lists them, brings them back, deletes them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, DryRun, RestTimeout, Yes
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.signals import orderly_end
from kafka_pipeline.admin.terminal import require_consent, say_progress, show, show_json
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.deployment.job import connected
from kafka_pipeline.operations.savepoints.manifest import (
    Manifest,
    Sources,
    is_savepoint,
    pipeline_file,
    read_manifest,
)
from kafka_pipeline.operations.times import shown_time

if TYPE_CHECKING:
    from kafka_pipeline.operations.savepoints.restore import Restore

savepoint_app = typer.Typer(
    help="Keep all that a job knows in files, and bring it back.",
    no_args_is_help=True,
)

Folder = Annotated[
    Path, typer.Argument(metavar="SAVEPOINT", help="The savepoint's folder.", file_okay=False)
]
SourcesOption = Annotated[
    Sources | None,
    typer.Option(
        "--sources",
        help="Where to begin in sources that are other topics than those of the savepoint.",
    ),
]


@savepoint_app.command("create")
@run_command
def create(
    config: ConfigPath,
    folder: Folder,
    drain: Annotated[
        bool, typer.Option("--drain", help="Process first what is on its way between processors.")
    ] = False,
    timeout_s: RestTimeout = 300,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Save the state of all stores, the committed offsets, and the records between processors.

    Most of the state is copied while the job runs. Then all tasks commit and stop, the rest is
    copied, and the tasks resume. Sources and sinks are not copied.

    Exit codes: 0 done, 2 the folder exists, or the job cannot be saved now, 3 Kafka does not
    answer, or the disk cannot be used, or time is up.
    """
    from kafka_pipeline.operations.savepoints.create import Creation  # starts slowly

    settings = load_config(config)
    creation = Creation(settings, connected(settings), folder, say_progress)
    if dry_run:
        typer.echo(f"{folder}: version {creation.version.number} of the job would be saved")
        return
    with orderly_end():  # SIGTERM must not leave the job stopped
        manifest = creation.carry_out(drains=drain, timeout_s=timeout_s)
    if as_json:
        show_json(_summary(folder, manifest))
        return
    state, waiting = manifest.records()
    typer.echo(
        f"{folder}: {counted(state, 'record')} of state and {counted(waiting, 'record')} that "
        f"waited, {manifest.size_bytes:,} bytes; the job was paused for "
        f"{manifest.stopped_ms / 1000:.1f} s"
    )


@savepoint_app.command("list")
@run_command
def list_savepoints(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where savepoints are.", file_okay=False)
    ] = Path(),
    as_json: AsJson = False,
) -> None:
    """List the savepoints in a folder, oldest first.

    Exit codes: 0 done, 2 there is no such folder, or a savepoint in it cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder")
    found = {path: read_manifest(path) for path in folder.iterdir() if is_savepoint(path)}
    rows = sorted(found.items(), key=lambda each: each[1].made_at_ms)
    if as_json:
        show_json([_summary(*row) for row in rows])
        return
    table = Table("savepoint", "job", "made at", "by", "version", "state", "waited", "bytes")
    for path, manifest in rows:
        state, waiting = manifest.records()
        table.add_row(
            Text(path.name),
            Text(manifest.job or ""),
            shown_time(manifest.made_at_ms),
            Text(manifest.made_by),
            str(manifest.version["number"]),
            f"{state:,}",
            f"{waiting:,}",
            f"{manifest.size_bytes:,}",
        )
    show(table)


@savepoint_app.command("restore")
@run_command
def restore(
    config: ConfigPath,
    folder: Folder,
    sources: SourcesOption = None,
    timeout_s: RestTimeout = 300,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Restore a job from its savepoint: pipeline, state, offsets, and records between processors.

    Nothing runs until the restore is complete; repeat the command if it was interrupted. Results
    that the job has written since stay where they are, and are written again. On another cluster,
    give --sources.

    Exit codes: 0 done, 1 the answer was no, 2 the savepoint does not suit the job, 3 Kafka does not
    answer, or time is up.
    """
    from kafka_pipeline.operations.savepoints.restore import restore_of_same_job  # starts slowly

    settings = load_config(config)
    found = restore_of_same_job(settings, connected(settings), folder, sources)
    _carry_out(found, timeout_s, dry_run=dry_run, yes=yes)


@savepoint_app.command("fork")
@run_command
def fork(
    config: ConfigPath,
    folder: Folder,
    pipeline: Annotated[
        Path | None,
        typer.Option(
            metavar="PIPELINE", help="Another pipeline.yaml than the savepoint's.", dir_okay=False
        ),
    ] = None,
    same_sinks: Annotated[
        bool, typer.Option("--same-sinks", help="Let both jobs write to the same sinks.")
    ] = False,
    sources: SourcesOption = None,
    timeout_s: RestTimeout = 300,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Make a new job from the savepoint of another job: CONFIG has the new job_name.

    The new job begins with that state, at those offsets. Start its JobManager without a
    pipeline.yaml, and its TaskManagers. Stores are matched by the ids of their processors.

    Exit codes: 0 done, 1 the answer was no, 2 the savepoint does not suit the job, or the job
    exists, 3 Kafka does not answer.
    """
    from kafka_pipeline.operations.savepoints.restore import fork as planned  # starts slowly

    path = pipeline or pipeline_file(folder)
    read_manifest(folder)
    settings, loaded = load_files(config, path)
    admin, text = connected(settings), path.read_text("utf-8")
    found = planned(settings, admin, folder, loaded, text, sources, same_sinks=same_sinks)
    _carry_out(found, timeout_s, dry_run=dry_run, yes=yes)
    typer.echo("start the JobManager of the new job without a pipeline.yaml, and its TaskManagers")


@savepoint_app.command("delete")
@run_command
def delete(folder: Folder, dry_run: DryRun = False, yes: Yes = False) -> None:
    """Delete a savepoint.

    Exit codes: 0 done, 1 the answer was no, 2 there is no savepoint in this folder, 3 it cannot be
    deleted.
    """
    manifest = read_manifest(folder)
    what = f"{folder}, a savepoint of {manifest.job_text} of {shown_time(manifest.made_at_ms)}"
    typer.echo(what)
    if dry_run:
        return
    require_consent("Delete it?", yes=yes)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise UnavailableError(f"{folder} cannot be deleted: {error}") from error


def _carry_out(found: Restore, timeout_s: float, *, dry_run: bool, yes: bool) -> None:
    found.check_files()
    show(found.plan.table())
    for line in found.plan.losses:
        typer.echo(f"- {line}")
    if dry_run:
        return
    require_consent("Replace the state of the job?", yes=yes)
    number = found.carry_out(timeout_s, say_progress)
    typer.echo(f"done: version {number} is the pipeline of the job")


def _summary(folder: Path, manifest: Manifest) -> dict[str, object]:
    state, waiting = manifest.records()
    return {
        "savepoint": str(folder),
        "job": manifest.job,
        "cluster": manifest.cluster,
        "made_at": shown_time(manifest.made_at_ms),
        "made_by": manifest.made_by,
        "version": manifest.version["number"],
        "stopped_ms": manifest.stopped_ms,
        "state_records": state,
        "waiting_records": waiting,
        "bytes": manifest.size_bytes,
    }

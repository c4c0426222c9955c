"""`pipeline dev`: runs a pipeline on this machine while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kafka_pipeline.admin.dev.project import find_project
from kafka_pipeline.admin.dev.run import DevOptions, run
from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command

_DEFAULT = Path("pipeline.yaml")


@run_command
def dev(
    pipeline: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PIPELINE]", help="Path of pipeline.yaml, the default."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Path of a config.yaml, whose Kafka is not used; by default, the one next to "
            "PIPELINE. Without one, the modules next to PIPELINE may be used.",
            show_default=False,
        ),
    ] = None,
    task_managers: Annotated[int, typer.Option(min=1, max=8, help="How many TaskManagers.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="PipelineThreads of each one.")] = 2,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the records and the state of former runs first.")
    ] = False,
) -> None:
    """Run a pipeline on this machine, and apply what you save, until Ctrl-C.

    Starts Kafka, TaskManagers and a JobManager, with one log. When you save pipeline.yaml, it is
    checked and applied; when you save code, the TaskManagers start again. If there is a mistake,
    the error is shown, and the former version keeps running. The records and the state stay in the
    folder .pipeline-dev next to the files, for the next run.

    Exit codes: 130 Ctrl-C ended it, 1 a daemon ended on its own, 2 the files are wrong at the
    start, 3 something needed is missing, or the command already runs in this folder.
    """
    project = find_project(_only(pipeline or [_DEFAULT]), config)
    signals = Signals()
    signals.install()
    try:
        run(project, DevOptions(task_managers, threads, fresh), Console(), signals)
    except Interrupted as interruption:
        raise SystemExit(128 + interruption.number) from None


def _only(given: Sequence[Path]) -> Path:
    """Return the one path; raises `ConfigError` if CONFIG is given as for other commands."""
    if len(given) == 1:
        return given[0]
    config = next((path for path in given if "config" in path.name), given[0])
    pipeline = next((path for path in given if path != config), _DEFAULT)
    raise ConfigError(
        "config.yaml is an option of this command, and found automatically if it is next to "
        f"pipeline.yaml: write `pipeline dev {pipeline} --config {config}`"
    )

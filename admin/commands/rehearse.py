"""`pipeline rehearse`: runs a new version in shadow next to a job, and compares the results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import AsJson, ConfigPath, duration_of
from kafka_pipeline.admin.rehearsal.tables import report_view
from kafka_pipeline.admin.signals import Interrupted, Signals
from kafka_pipeline.admin.terminal import say_progress, show, show_json
from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.operations.rehearsal.report_json import Verdict
from kafka_pipeline.operations.rehearsal.shadow import MOST_TASK_MANAGERS

_EXIT_CODES = {Verdict.EQUAL: 0, Verdict.DIFFERENT: 1, Verdict.NOTHING: 3}


@run_command
def rehearse(
    config: ConfigPath,
    pipeline: Annotated[
        Path | None,
        typer.Argument(metavar="[PIPELINE]", help="Path of the new pipeline.yaml.", dir_okay=False),
    ] = None,
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="For how long to compare: 30 s, 2 h.")
    ] = "10 min",
    task_managers: Annotated[
        int, typer.Option(min=1, max=MOST_TASK_MANAGERS, help="TaskManagers of the shadow.")
    ] = 1,
    threads: Annotated[int, typer.Option(min=1, help="PipelineThreads of each one.")] = 2,
    no_local: Annotated[
        bool,
        typer.Option("--no-local", help="Start no daemons, but say how to start them elsewhere."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the shadow's topics, offsets and state.")
    ] = False,
    only_discard: Annotated[
        bool, typer.Option("--discard", help="Only delete what rehearsals have left.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a new version in shadow next to the job, on the same records, and compare the results.

    Makes a savepoint, which pauses the job for a few seconds, and a shadow from it: a separate job
    with the code on this machine and its own state and sinks. Compares results by key, dead
    letters and speed as they arrive. Then deletes the whole shadow. Ctrl-C ends it sooner.

    Exit codes: 0 all results are equal, 1 some differ, or a task of the shadow has failed, 2 wrong
    arguments or files, or the pipeline cannot run on the job's state, 3 Kafka or the job does not
    answer, or nothing could be compared.
    """
    from kafka_pipeline.admin.rehearsal.run import Rehearsal, RehearsalOptions  # starts slowly

    seconds = duration_of("--for", duration) / 1000
    if (pipeline is None) is not only_discard:
        raise ConfigError("give a PIPELINE to rehearse, or --discard alone")
    live = load_config(config)
    signals = Signals()
    rehearsal = Rehearsal(config, live, signals, say_progress)
    with rehearsal.locked() as lock:
        if pipeline is None:
            typer.echo(f"deleted: {counted(len(rehearsal.discard()), 'topic')}")
            return
        signals.install()
        options = RehearsalOptions(seconds, task_managers, threads, not no_local)
        try:
            report = rehearsal.run(pipeline, options, lock)
            with_values = live.log_record_values
            if as_json:
                show_json(report.to_json(with_values=with_values))
            else:
                show(report_view(report, with_values=with_values))
        except Interrupted as interruption:
            raise SystemExit(128 + interruption.number) from None
        finally:
            rehearsal.clean_up(keep=keep)
    raise SystemExit(_EXIT_CODES[report.verdict])

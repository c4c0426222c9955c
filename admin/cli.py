"""The `pipeline` command line."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from admin import status as cluster
from admin.broker.command import broker_app
from admin.describe import mermaid, overview
from admin.init import write_samples
from admin.schema import SchemaName, schema_text
from common import logs
from common.cli import run_command
from common.config import Config, load_config
from common.errors import ConfigError
from common.pipeline import Pipeline
from common.suggest import counted
from common.topics import control_topics
from streams.engine.user_code import UserCode
from streams.pipeline.kinds.registry import kind_of
from streams.pipeline.load import check_pipeline_file, load_pipeline
from streams.testing.driver import start_problem

app = typer.Typer(
    help="Make, check, describe and watch a pipeline.",
    no_args_is_help=True,
    add_completion=False,
    # An unexpected error shows Python's own traceback, without the values of variables.
    pretty_exceptions_enable=False,
)
app.add_typer(broker_app, name="broker")

_PIPE_WIDTH = 200

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="Path of config.yaml.")]
PipelinePath = Annotated[Path, typer.Argument(metavar="PIPELINE", help="Path of pipeline.yaml.")]


@app.callback()
def _common() -> None:
    # A command prints its answer; of the log, only warnings and errors are shown.
    logs.configure("console", "warning")


@app.command()
@run_command
def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to.")] = Path("."),
) -> None:
    """Write a sample config.yaml and pipeline.yaml, and the schemas that editors check them by.

    Existing files stay untouched.
    """
    for path in write_samples(folder):
        typer.echo(f"wrote {path}")


@app.command()
@run_command
def validate(
    config: ConfigPath,
    pipeline: PipelinePath,
    with_init: Annotated[
        bool,
        typer.Option(
            "--init/--no-init",
            help="Whether to make each processor of your code once, with empty stores in memory, "
            "and run its init and close.",
        ),
    ] = True,
) -> None:
    """Check both files and report every mistake with its line and column.

    Imports the code that the pipeline names, and starts each processor of it once, unless
    --no-init leaves that out. Starts a Spark, for some seconds, if it has queries to check.
    """
    settings, loaded = _load(config, pipeline, with_classes=True, with_init=with_init)
    if any(kind_of(processor.spec).needs_spark for processor in loaded.processors):
        # Imported late: Spark takes a while, and most commands do not need it.
        from streams.sql.local import LocalQueries

        load_pipeline(
            pipeline,
            settings,
            LocalQueries(UserCode.of(settings), settings.tables, settings.spark.conf),
        )
    topics = (*loaded.data_topics(settings.replication_factor), *control_topics(settings))
    counts = {
        "processor": len(loaded.processors),
        "task": len(loaded.tasks),
        "topic": len(topics),
    }
    typer.echo(f"ok: {', '.join(counted(count, noun) for noun, count in counts.items())}")


@app.command()
@run_command
def describe(
    config: ConfigPath,
    pipeline: PipelinePath,
    as_mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead.")
    ] = False,
) -> None:
    """Show the graph, the topics and the tasks that the two files make."""
    settings, loaded = _load(config, pipeline)
    if as_mermaid:
        typer.echo(mermaid(loaded))
    else:
        _show(overview(settings, loaded))


@app.command()
@run_command
def schema(
    name: Annotated[SchemaName, typer.Argument(help="Which file the schema is for.")],
) -> None:
    """Print the JSON Schema of config.yaml or pipeline.yaml, for editors.

    It checks one value at a time; `pipeline validate` also checks how they fit together.
    """
    typer.echo(schema_text(name), nl=False)


@app.command()
@run_command
def test(
    suites: Annotated[list[Path], typer.Argument(metavar="SUITE...", help="Paths of suites.")],
) -> None:
    """Run a pipeline without Kafka, and compare with what YAML suites expect.

    Exit codes: 0 all tests passed, 1 some failed, 2 a file is wrong, 3 something needed, such as
    Java, is not there.
    """
    # Imported late: the stream API takes a while, and most commands do not need it.
    from streams.testing.suites import run_suite

    results = [result for suite in suites for result in run_suite(suite)]
    for result in results:
        typer.echo(f"FAILED  {result.name}" if result.problem else f"ok      {result.name}")
        if result.problem:
            typer.echo(f"        {result.problem}")
    failed = sum(bool(result.problem) for result in results)
    typer.echo(f"{len(results) - failed} passed, {failed} failed")
    if failed:
        raise typer.Exit(1)


@app.command()
@run_command
def status(
    config: ConfigPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for programs.")] = False,
) -> None:
    """Show who is there and how the tasks do, by the last heartbeats.

    Exit codes: 0 whatever the status is, 2 wrong argument or file, 3 Kafka is not there.
    """
    found = cluster.read_status(load_config(config))
    if as_json:
        typer.echo(cluster.as_json(found))
    else:
        _show(cluster.overview(found))


@app.command()
@run_command
def backfill(
    config: ConfigPath,
    pipeline: PipelinePath,
    from_: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="[NAME=]WHERE",
            help="A Parquet or CSV file, a folder of them, or topic:NAME[@from..to] with offsets "
            "or times (digits alone are an offset, a date is 2026-01-31); once for each source.",
        ),
    ],
    to: Annotated[
        str, typer.Option(metavar="WHERE", help="A folder that is new or empty, or topic:NAME.")
    ],
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where it keeps what is done, apart from --from and --to. Default: beside --to, "
            "or in state_dir.",
        ),
    ] = None,
) -> None:
    """Run a pipeline over history, as bounded Spark work; goes on where it was interrupted.

    Exit codes: 0 done, 1 a record was rejected, 2 wrong argument, file or input, 3 Spark or Kafka
    is not there.
    """
    # Imported late: Arrow and Spark take a while, and most commands do not need them.
    from streams.backfill.plan import make_plan
    from streams.backfill.run import default_work, run_backfill
    from streams.sql.bounded import BoundedJobs

    plan = make_plan(config, pipeline, from_, to)
    result = run_backfill(plan, work or default_work(plan), Console(stderr=True), BoundedJobs)
    written = ", ".join(f"{count:,} to {topic}" for topic, count in result.written.items())
    typer.echo(f"{counted(result.read, 'record')} read; written: {written or 'none'}")
    if result.skipped or result.dropped:
        typer.echo(f"{result.skipped:,} skipped, {result.dropped:,} dropped")


def main() -> None:
    """Run the command that the process arguments name."""
    app()


def _show(content: RenderableType) -> None:
    # In a pipe or a file, names stay on one line, so that grep finds them.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    # Without cropping: the terminal wraps lines that are too long.
    Console(width=width).print(content, crop=False)


def _load(
    config: Path, pipeline: Path, *, with_classes: bool = False, with_init: bool = False
) -> tuple[Config, Pipeline]:
    try:
        settings = load_config(config)
    except ConfigError as error:
        try:
            check_pipeline_file(pipeline)
        except ConfigError as more:
            raise ConfigError([*error.problems, *more.problems]) from more
        raise
    starts = partial(start_problem, config=settings) if with_init else None
    return settings, load_pipeline(
        pipeline, settings, with_classes=with_classes, start_problem=starts
    )

"""`pipeline table`: what is to be done now and then with the tables that processors write."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, PipelinePath
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.operations.compaction import compact as compact_table
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of

table_app = typer.Typer(
    help="Take care of the tables that processors write.",
    no_args_is_help=True,
)


@table_app.callback()
def _table() -> None:
    # Without it, a single command would not need its name.
    pass


@table_app.command()
@run_command
def compact(
    config: ConfigPath,
    pipeline: PipelinePath,
    processors: Annotated[
        list[str] | None,
        typer.Option("--processor", metavar="ID", help="Only its table; may be repeated."),
    ] = None,
) -> None:
    """Merge the small files of Delta tables, and delete files that were unused for a week.

    The job can keep running. Readers see the same rows before and after it.

    Exit codes: 0 done, 2 wrong arguments, 3 the storage does not answer, or others change the
    table.
    """
    settings, loaded = load_files(config, pipeline)
    tables: dict[str, str] = {}
    for processor in loaded.processors:
        spec = kind_of(processor.spec).located(processor.spec, settings.tables)
        if isinstance(spec, TableSinkSpec) and spec.format == "delta":
            tables[processor.id] = spec.path
    unknown = sorted({*(processors or ())} - tables.keys())
    if unknown:
        raise ConfigError(f"{', '.join(unknown)}: no processor with this id writes a Delta table")
    if not tables:
        raise ConfigError("no processor of this pipeline writes a Delta table")
    # Several processors may write the same table.
    places = {path: id_ for id_, path in tables.items() if not processors or id_ in processors}
    for path, id_ in places.items():
        done = compact_table(path)
        if done is None:
            typer.echo(f"{id_}: there is no table yet at {path}")
            continue
        typer.echo(
            f"{id_}: joined {counted(done.joined, 'file')} into {done.made}, and deleted "
            f"{counted(done.deleted, 'old file')}"
        )

"""`pipeline validate`: finds what is wrong with the two files and the user's code."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kafka_pipeline.admin.arguments import ConfigPath, PipelinePath
from kafka_pipeline.admin.files import load_files
from kafka_pipeline.admin.registry_questions import RegistryQuestions
from kafka_pipeline.common.control.topics import control_topics
from kafka_pipeline.common.errors import Problem
from kafka_pipeline.common.process.cli import run_command
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.load import import_modules, load_pipeline
from kafka_pipeline.streams.pipeline.spark_answers import local_queries, result_of


@run_command
def validate(
    config: ConfigPath,
    pipeline: PipelinePath,
    with_init: Annotated[
        bool,
        typer.Option(
            "--init/--no-init",
            help="Whether to create each of your processors once, with empty stores in memory, "
            "and run its init and close.",
        ),
    ] = True,
) -> None:
    """Check both files and report every mistake with its line and column.

    Imports the modules of config.yaml, and starts each of their processors once, unless you give
    --no-init. If there are queries, starts Spark for a few seconds to check them. Asks the schema
    registry, if it answers, whether it has the subjects and accepts the schemas, and compares the
    columns of queries with the schemas and tables that they are written to. Reports sources and
    sinks that no processor uses.
    """
    registry, unused = RegistryQuestions(), list[Problem]()
    settings, loaded = load_files(
        config,
        pipeline,
        with_classes=True,
        with_init=with_init,
        registry=registry,
        note=unused.append,
    )
    if any(kind_of(processor.spec).needs_spark for processor in loaded.processors):
        queries = local_queries(settings)
        load_pipeline(
            pipeline,
            settings,
            queries,
            schema_problem=partial(registry.problems, settings.schema_registry),
            results=lambda specs: [result_of(queries, spec) for spec in specs],
        )
    import_modules(settings)
    topics = (*loaded.data_topics(settings.replication_factor), *control_topics(settings))
    counts = {
        "processor": len(loaded.processors),
        "task": len(loaded.tasks),
        "topic": len(topics),
    }
    typer.echo(f"ok: {', '.join(counted(count, noun) for noun, count in counts.items())}")
    for each in unused:
        typer.echo(f"note: {each}", err=True)
    for processor in loaded.processors:
        for kept in kind_of(processor.spec).keeps(processor.spec):
            typer.echo(f"{processor.id} keeps {kept}")

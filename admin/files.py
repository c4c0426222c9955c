"""The two files that commands read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from kafka_pipeline.admin.registry_questions import RegistryQuestions
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.setting_problem import setting_problem
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import ProcessorSpec
from kafka_pipeline.streams.pipeline.load import Note, check_pipeline_file, load_pipeline
from kafka_pipeline.streams.pipeline.result_uses import Results
from kafka_pipeline.streams.pipeline.spark_answers import ask_spark
from kafka_pipeline.streams.testing.driver import start_problem


def load_files(
    config: Path,
    pipeline: Path,
    *,
    with_classes: bool = False,
    with_init: bool = False,
    registry: RegistryQuestions | None = None,
    asks_spark: bool = False,
    note: Note = lambda _: None,
) -> tuple[Config, Pipeline]:
    """Read config.yaml and pipeline.yaml; raise ConfigError with the mistakes of both.

    See `load_pipeline` for `with_classes` and `note`; `with_init` also starts each processor once.
    `registry` compares serdes with the schema registry, if that answers. `asks_spark` compares
    the results of queries with the schemas and tables that get them: for these, a Spark starts.
    """
    try:
        settings = load_config(config, setting_problem)
    except ConfigError as error:
        try:
            check_pipeline_file(pipeline)
        except ConfigError as more:
            raise ConfigError([*error.problems, *more.problems]) from more
        raise
    starts = partial(start_problem, config=settings) if with_init else None
    schemas = partial(registry.problems, settings.schema_registry) if registry else None
    return settings, load_pipeline(
        pipeline,
        settings,
        with_classes=with_classes,
        start_problem=starts,
        schema_problem=schemas,
        results=_results(settings) if asks_spark else None,
        note=note,
    )


def _results(settings: Config) -> Results:
    def types(specs: Sequence[ProcessorSpec]) -> list[str]:
        found = ask_spark(settings, specs, "result")
        for why in dict.fromkeys(each.unknown for each in found if each.unknown):
            typer.echo(f"note: the results of queries were not compared: {why}", err=True)
        return [each.text for each in found]

    return types

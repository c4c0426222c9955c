"""Reads pipeline.yaml into a `Pipeline`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kafka_pipeline.common.code.user_code import UserCode, require_other_names
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.references import reference_problems
from kafka_pipeline.common.config.yaml_positions import Problems, read_yaml
from kafka_pipeline.common.errors import ConfigError, Problem
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.streams.pipeline.arc_kinds import ArcKinds, with_changelogs
from kafka_pipeline.streams.pipeline.avro_columns import with_columns
from kafka_pipeline.streams.pipeline.bounded_joins import with_bounds_as_conditions
from kafka_pipeline.streams.pipeline.change_sources import with_change_events
from kafka_pipeline.streams.pipeline.feedback import check_feedback
from kafka_pipeline.streams.pipeline.file import read_pipeline
from kafka_pipeline.streams.pipeline.fronts import with_fronts_in_joins
from kafka_pipeline.streams.pipeline.graph import check_graph, topological_order
from kafka_pipeline.streams.pipeline.join_keys import with_join_keys
from kafka_pipeline.streams.pipeline.kinds.entry import PipelineFile
from kafka_pipeline.streams.pipeline.kinds.history import check_histories
from kafka_pipeline.streams.pipeline.kinds.kind import Means
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of
from kafka_pipeline.streams.pipeline.partitions import check_given_counts
from kafka_pipeline.streams.pipeline.result_uses import Results, result_columns, table_problems
from kafka_pipeline.streams.pipeline.schema_uses import SchemaProblem, SchemaUse, schema_uses
from kafka_pipeline.streams.pipeline.topics import Made, check_topics
from kafka_pipeline.streams.sql.spec import Queries

StartProblem = Callable[[PipelineProcessor], str]
"""Makes processors as their tasks would, and runs `init`; returns what is wrong, or ""."""

Note = Callable[[Problem], None]
"""Takes something about a file that may be meant."""


def import_modules(config: Config) -> None:
    """Import all modules of config.yaml, as each TaskManager does when it starts.

    Raises `ConfigError` for one that cannot be imported, whether or not a processor names it.
    """
    UserCode.of(config).import_all()


def load_pipeline(
    path: Path,
    config: Config,
    queries: Queries | None = None,
    *,
    with_classes: bool = False,
    start_problem: StartProblem | None = None,
    schema_problem: SchemaProblem | None = None,
    results: Results | None = None,
    note: Note = lambda _: None,
) -> Pipeline:
    """Return the checked content of a pipeline.yaml.

    Imports and calls the users' functions that build topologies. Asks the schema registry for the
    columns of queries over Avro. With `queries`, lets Spark check the queries that it will run.
    `with_classes` imports users' classes and checks that they accept their config. If all that is
    right, `start_problem` is called for each one that runs users' processors, then `schema_problem`
    for each serde with schemas. With `results`, that has the columns of queries, and they are
    compared with those of tables. Sources and sinks that no processor uses go to `note`. Raises
    ConfigError with every problem found.
    """
    require_other_names(config.modules, config.python_path)
    problems = Problems(path)
    file, kinds = _read(path, problems)
    file = with_columns(file, config, problems)
    means = Means(config, queries, with_classes)
    made: dict[str, Made] = {}
    check_histories(file, config.tables, problems)
    for entry in topological_order(file.entries):
        kind = kind_of(entry.spec)
        kind.check(entry, entry.spec, file, problems)
        kind.check_code(entry, entry.spec, file, means, problems)
        for problem in reference_problems(entry.spec, config.secrets):
            problems.add(entry.at, f'"{entry.id}": {problem}')
        for made_of_entry in kind.processors(entry, entry.spec, file, config, problems):
            processor = kinds.processor(entry, made_of_entry)
            if made.setdefault(processor.id, (entry, processor))[1] is not processor:
                problems.add(
                    entry.at,
                    f'two processors have the id "{processor.id}", as those of a topology are '
                    "called <id>-<first source>: rename one",
                )
    made = with_fronts_in_joins(made)
    processors = tuple(processor for _, processor in made.values())
    pipeline = Pipeline(
        processors,
        config.topic_names,
        config.parallelism,
        _partitions(processors),
        _renames(made.values()),
    )
    check_topics(file, pipeline, [*made.values()], problems)
    check_feedback(pipeline, [*made.values()], problems)
    _check_counts(pipeline, made.values(), problems)
    problems.raise_if_any()
    if start_problem is not None:
        _check_starts(made.values(), start_problem, problems)
        problems.raise_if_any()
    columns = {} if results is None else result_columns(made, results)
    for at, wrong in table_problems(file, made, columns):
        problems.add(at, wrong)
    if schema_problem is not None:
        uses = schema_uses(file, pipeline, made.values(), columns)
        _check_schemas(uses, schema_problem, problems)
    problems.raise_if_any()
    for unused in _unused_names(path, file, pipeline):
        note(unused)
    return pipeline


def _check_counts(pipeline: Pipeline, made: Iterable[Made], problems: Problems) -> None:
    for entry, processor in made:
        try:
            check_given_counts(pipeline, processor)
        except ConfigError as error:
            problems.add(entry.at, str(error))


def _check_starts(made: Iterable[Made], start_problem: StartProblem, problems: Problems) -> None:
    for entry, processor in made:
        kind = kind_of(processor.spec)
        if kind.runs_user_processors and (wrong := start_problem(processor)):
            problems.add(entry.at, f'"{entry.id}": {wrong}')


def _check_schemas(
    uses: Iterable[SchemaUse], schema_problem: SchemaProblem, problems: Problems
) -> None:
    for use in uses:
        for wrong in schema_problem(use):
            problems.add(use.at, f'"{use.processor}": {wrong}')


def _renames(made: Iterable[Made]) -> dict[str, str]:
    """Return former ids by today's: an entry makes processors whose ids begin with its own."""
    found = {}
    for entry, processor in made:
        if entry.was:
            found[entry.id] = entry.was
            found[processor.id] = entry.was + processor.id.removeprefix(entry.id)
    return found


def check_pipeline_file(path: Path) -> None:
    """Raise ConfigError with every problem of a pipeline.yaml that shows without a config.yaml."""
    problems = Problems(path)
    _read(path, problems)
    problems.raise_if_any()


def _unused_names(path: Path, file: PipelineFile, pipeline: Pipeline) -> Iterator[Problem]:
    """Yield the sources and sinks that a pipeline.yaml names, and that the pipeline does not use.

    A processor without `from` reads the source topic instead, which may not be what is meant.
    """
    for name, topic in file.topics.items():
        if topic not in pipeline.user_topics:
            way = (
                f'reads the source "{name}"'
                if name in file.sources
                else f'sends to the sink "{name}"'
            )
            at = file.places[name]
            yield Problem(str(path), at.line, at.column, f"no processor {way}")


def _read(path: Path, problems: Problems) -> tuple[PipelineFile, ArcKinds]:
    """Return a pipeline, of which each query knows what it reads, and the kinds of its arcs."""
    file = read_pipeline(read_yaml(path, problems), problems)
    check_graph(file, problems)
    file = with_join_keys(with_bounds_as_conditions(file, problems))
    kinds = ArcKinds(file)
    return with_change_events(with_changelogs(file, kinds, problems), kinds, problems), kinds


def _partitions(processors: tuple[PipelineProcessor, ...]) -> dict[str, int]:
    """Return the number of partitions of each internal topic whose builder sets it."""
    return {
        processor.topics[topic]: count
        for processor in processors
        for topic, count in processor.internal_topics.items()
        if count is not None
    }

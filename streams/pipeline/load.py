"""Reads pipeline.yaml into a `Pipeline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.config import Config
from common.errors import ConfigError
from common.names import name_problem
from common.pipeline import Pipeline
from common.processors import (
    BUILT_IN,
    ON_SPARK,
    SINK,
    SOURCE,
    LoggedStore,
    PipelineProcessor,
    ProcessorType,
)
from common.topic_names import TopicNames
from common.yaml_positions import Problems, read_yaml
from streams.engine.node_group import NodeGroup
from streams.engine.user_code import UserCode, form_problem
from streams.errors import StreamsError
from streams.pipeline.entries import Entry
from streams.pipeline.file import NEEDS_JSON, PipelineFile, read_pipeline
from streams.pipeline.graph import check_graph, topological_order
from streams.pipeline.stores import store_of
from streams.pipeline.topics import check_topics
from streams.pipeline.user_class import class_supplier
from streams.pipeline.user_topology import build_topology
from streams.sql.access import table_problems
from streams.sql.spec import Queries, QueryError, QuerySpec, SparkLostError


def load_pipeline(
    path: Path, config: Config, queries: Queries | None = None, *, with_classes: bool = False
) -> Pipeline:
    """Return the checked content of a pipeline.yaml.

    Imports and calls the users' functions that build topologies. With `queries`, lets Spark check
    the queries that it will run. `with_classes` imports users' classes and checks that they accept
    their config. Raises ConfigError with every problem found.
    """
    problems = Problems(path)
    file = read_pipeline(read_yaml(path, problems), problems)
    check_graph(file, problems)
    by_id: dict[str, PipelineProcessor] = {}
    for entry in topological_order(file.entries):
        for processor in _processors(entry, file, config, problems, with_classes):
            if processor.type in ON_SPARK:
                _check_query(processor, config, queries, entry, problems)
            if by_id.setdefault(processor.id, processor) is not processor:
                problems.add(
                    entry.at,
                    f'two processors have the id "{processor.id}", as those of a topology are '
                    "called <id>-<first source>: rename one",
                )
    processors = tuple(by_id.values())
    pipeline = Pipeline(processors, config.topic_names, config.parallelism, _partitions(processors))
    check_topics(file, pipeline, problems)
    problems.raise_if_any()
    return pipeline


def check_pipeline_file(path: Path) -> None:
    """Raise ConfigError with every problem of a pipeline.yaml that shows without a config.yaml."""
    problems = Problems(path)
    check_graph(read_pipeline(read_yaml(path, problems), problems), problems)
    problems.raise_if_any()


def _partitions(processors: Sequence[PipelineProcessor]) -> dict[str, int]:
    """Return the number of partitions of each internal topic whose builder sets it."""
    return {
        processor.topics[topic]: count
        for processor in processors
        for topic, count in processor.options.get("internal", {}).items()
        if count is not None
    }


def _processors(
    entry: Entry, pipeline: PipelineFile, config: Config, problems: Problems, with_classes: bool
) -> list[PipelineProcessor]:
    if entry.type in (*BUILT_IN, *ON_SPARK):
        _check_sources(entry, pipeline, problems)
    if entry.type is ProcessorType.CLASS:
        _check_times(entry, pipeline, problems)
    uses_code = entry.type in (ProcessorType.CLASS, ProcessorType.DATAFRAME)
    if uses_code and not form_problem(entry.code):
        try:
            UserCode.of(config).require_allowed(entry.code)
            if with_classes and entry.type is ProcessorType.CLASS:
                settings = entry.options.get("async", {})
                class_supplier(UserCode.of(config), entry.code, entry.config, settings)
        except ConfigError as error:
            problems.add(entry.at, f'"{entry.id}": {error}')
    if entry.type is not ProcessorType.TOPOLOGY:
        return [_processor(entry, pipeline)]
    if not entry.code:
        return []
    try:
        topology = build_topology(UserCode.of(config), entry.code, entry.config)
        own = {topic.name: topic.partitions for topic in topology.internal_topics}
        for topic in sorted(own.keys() & {SOURCE, SINK}):
            raise StreamsError(f'internal topic "{topic}" has a reserved name: choose another one')
        for source in sorted({t for g in topology.groups for t in g.in_topics}):
            if pipeline.source_options.get(source):
                raise StreamsError(
                    f'source "{source}" has options, and a topology says itself how it reads its '
                    "sources: give them to add_source, or name the topic once more without options"
                )
        names = config.topic_names
        topics = {
            topic: names.internal(entry.id, topic)
            if topic in own
            else pipeline.topics.get(topic, topic)
            for group in topology.groups
            for topic in (*group.in_topics, *group.out_topics)
        } | {
            store.topic: _followed_topic(store.topic, pipeline, names)
            for store in topology.global_stores
        }
        return [_group_processor(entry, group, topics, own) for group in topology.groups]
    except (ConfigError, StreamsError) as error:
        for line in str(error).splitlines() or [type(error).__name__]:
            problems.add(entry.at, f'"{entry.id}": {line}')
        return []


def _followed_topic(topic: str, pipeline: PipelineFile, names: TopicNames) -> str:
    """Return the topic in Kafka that a global store follows."""
    return {SOURCE: names.source, SINK: names.sink, **pipeline.topics}.get(topic, topic)


def _check_query(
    processor: PipelineProcessor,
    config: Config,
    queries: Queries | None,
    entry: Entry,
    problems: Problems,
) -> None:
    """Report lookup tables that TaskManagers would not read; then let Spark check, if available.

    Each TaskManager checks the tables by its own config.yaml.
    """
    tables = processor.options["tables"]
    # A table without a format was reported already.
    refused = table_problems(config.tables, {name: t for name, t in tables.items() if t["format"]})
    for problem in refused:
        problems.add(entry.at, f'"{processor.id}": {problem}')
    if queries is None or refused:
        return
    try:
        queries.open(QuerySpec.of(processor.code, processor.options, processor.config)).close()
    except (QueryError, SparkLostError) as error:
        problems.add(entry.at, f'"{processor.id}": {error}')


def _check_sources(entry: Entry, pipeline: PipelineFile, problems: Problems) -> None:
    """Report sources with options that a built-in type cannot follow, since it works on bytes."""
    for source in entry.sources:
        for name in ("key", "value", "timestamp"):
            if name in pipeline.source_options.get(source.id, {}):
                problems.add(
                    source.at,
                    f'{entry.type} takes records as they are: source "{source.id}" must not say '
                    f"{name}",
                )


def _check_times(entry: Entry, pipeline: PipelineFile, problems: Problems) -> None:
    """Report sources whose time is in a field, if the class reads their values without fields."""
    serde = entry.options["value"]
    for source in entry.sources:
        options = pipeline.source_options.get(source.id, {})
        in_field = isinstance(options.get("timestamp"), Mapping)
        if in_field and "value" not in options and serde != "json":
            problems.add(source.at, f'source "{source.id}": {NEEDS_JSON}, not {serde}')


def _processor(entry: Entry, pipeline: PipelineFile) -> PipelineProcessor:
    senders = tuple(
        other.id
        for other in pipeline.entries
        if any(target.id == entry.id for target in other.targets)
    )
    from_ = (*(source.id for source in entry.sources), *senders) or (SOURCE,)
    to = tuple(target.id for target in entry.targets)
    stores = [store_of(spec) for spec in entry.options.get("stores", ())]
    return PipelineProcessor(
        id=entry.id,
        type=entry.type,
        to=to,
        from_=from_,
        on_error=entry.on_error,
        config=entry.config,
        code=entry.code,
        topics={name: pipeline.topics[name] for name in (*from_, *to) if name in pipeline.topics},
        logged_stores=tuple(
            LoggedStore(store.name, store.topic_config(), store.persistent)
            for store in stores
            if store.logged
        ),
        options=_options(entry, from_, pipeline),
    )


def _options(entry: Entry, from_: tuple[str, ...], pipeline: PipelineFile) -> Mapping[str, Any]:
    sources = {
        name: pipeline.source_options[name] for name in from_ if name in pipeline.source_options
    }
    return {**entry.options, "sources": sources} if sources else entry.options


def _group_processor(
    entry: Entry, group: NodeGroup, topics: Mapping[str, str], own: Mapping[str, int | None]
) -> PipelineProcessor:
    id_ = f"{entry.id}-{group.name}"
    wrong = name_problem(id_)
    if wrong:
        raise StreamsError(f'the id "{id_}" of a node group {wrong}')
    used = (*group.in_topics, *group.out_topics)
    followed = {store.store.name: topics[store.topic] for store in group.global_stores}
    for topic in (*used, *followed.values()):
        wrong = name_problem(topic)
        if wrong:
            raise StreamsError(f'the topic "{topic}" {wrong}')
    patterns = [
        [source.pattern.pattern, source.pattern.flags]
        for source in group.sources
        if source.pattern is not None
    ]
    return PipelineProcessor(
        id=id_,
        type=ProcessorType.TOPOLOGY,
        to=group.out_topics,
        from_=group.in_topics,
        on_error=entry.on_error,
        config=entry.config,
        code=entry.code,
        topics={topic: topics[topic] for topic in used},
        logged_stores=tuple(
            LoggedStore(store.name, store.topic_config(), store.persistent)
            for store in group.stores
            if store.logged
        ),
        options={
            **entry.options,
            "group": group.name,
            "internal": {topic: own[topic] for topic in group.in_topics if topic in own},
            **({"globals": followed} if followed else {}),
            **({"patterns": patterns} if patterns else {}),
        },
    )

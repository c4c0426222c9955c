"""Reads pipeline.yaml into a topology."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.config import Config
from common.errors import ConfigError
from common.nodes import BUILT_IN, SOURCE, LoggedStore, ProcessorNode, ProcessorType, Topology
from common.topics import TopicNames, name_problem
from common.yaml_positions import Problems, read_yaml
from streams.errors import StreamsError
from streams.pipeline.entries import Entry
from streams.pipeline.file import PipelineFile, read_pipeline
from streams.pipeline.graph import check_graph, topological_order
from streams.pipeline.stores import store_of
from streams.pipeline.topics import check_topics
from streams.pipeline.user_topology import build_topology
from streams.topology import NodeGroup
from streams.user_code import UserCode


def load_pipeline(path: Path, config: Config) -> Topology:
    """Return the checked topology of a pipeline.yaml.

    Calls the functions that build topologies of the user's, and imports their modules for that.
    Raises ConfigError with every problem found.
    """
    problems = Problems(path)
    pipeline = read_pipeline(read_yaml(path, problems), problems)
    check_graph(pipeline, problems)
    nodes = [
        node
        for entry in topological_order(pipeline.entries)
        for node in _nodes(entry, pipeline, config, problems)
    ]
    check_topics(pipeline, nodes, config, problems)
    problems.raise_if_any()
    return Topology(tuple(nodes))


def _nodes(
    entry: Entry, pipeline: PipelineFile, config: Config, problems: Problems
) -> list[ProcessorNode]:
    if entry.type in BUILT_IN:
        _check_sources(entry, pipeline, problems)
    if entry.type is not ProcessorType.TOPOLOGY:
        return [_node(entry, pipeline)]
    if not entry.code:
        return []
    try:
        topology = build_topology(UserCode.of(config), entry.code, entry.config)
        own = {topic.name for topic in topology.internal_topics}
        names = TopicNames.of(config)
        topics = {
            topic: names.internal(entry.id, topic)
            if topic in own
            else pipeline.topics.get(topic, topic)
            for group in topology.groups
            for topic in (*group.in_topics, *group.out_topics)
        }
        return [_group_node(entry, group, topics, own) for group in topology.groups]
    except (ConfigError, StreamsError) as error:
        problems.add(entry.at, f'"{entry.id}": {error}')
        return []


def _check_sources(entry: Entry, pipeline: PipelineFile, problems: Problems) -> None:
    """Report sources with options that a built-in type, which works on bytes, cannot follow."""
    for source in entry.sources:
        for name in ("key", "value", "timestamp"):
            if name in pipeline.source_options.get(source.id, {}):
                problems.add(
                    source.at,
                    f'{entry.type} takes records as they are: source "{source.id}" must not say '
                    f"{name}",
                )


def _node(entry: Entry, pipeline: PipelineFile) -> ProcessorNode:
    senders = tuple(
        other.id
        for other in pipeline.entries
        if any(target.id == entry.id for target in other.targets)
    )
    from_ = (*(source.id for source in entry.sources), *senders) or (SOURCE,)
    to = tuple(target.id for target in entry.targets)
    stores = [store_of(spec) for spec in entry.options.get("stores", ())]
    return ProcessorNode(
        id=entry.id,
        type=entry.type,
        to=to,
        from_=from_,
        on_error=entry.on_error,
        config=entry.config,
        code=entry.code,
        topics={name: pipeline.topics[name] for name in (*from_, *to) if name in pipeline.topics},
        logged_stores=tuple(
            LoggedStore(store.name, store.topic_config()) for store in stores if store.logged
        ),
        options=_options(entry, from_, pipeline),
    )


def _options(entry: Entry, from_: tuple[str, ...], pipeline: PipelineFile) -> Mapping[str, Any]:
    sources = {
        name: pipeline.source_options[name] for name in from_ if name in pipeline.source_options
    }
    return {**entry.options, "sources": sources} if sources else entry.options


def _group_node(
    entry: Entry, group: NodeGroup, topics: Mapping[str, str], own: set[str]
) -> ProcessorNode:
    id_ = f"{entry.id}-{group.name}"
    wrong = name_problem(id_)
    if wrong:
        raise StreamsError(f'the name of source "{group.name}" {wrong}')
    if any(source.pattern is not None for source in group.sources):
        raise StreamsError(f'source "{group.name}" reads a pattern: name the topics instead')
    used = (*group.in_topics, *group.out_topics)
    return ProcessorNode(
        id=id_,
        type=ProcessorType.TOPOLOGY,
        to=group.out_topics,
        from_=group.in_topics,
        on_error=entry.on_error,
        config=entry.config,
        code=entry.code,
        topics={topic: topics[topic] for topic in used},
        logged_stores=tuple(
            LoggedStore(store.name, store.topic_config()) for store in group.stores if store.logged
        ),
        options={
            **entry.options,
            "group": group.name,
            "internal": sorted(own.intersection(group.in_topics)),
        },
    )

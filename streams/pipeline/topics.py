"""Checks that every topic of a pipeline has a unique name that Kafka accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.config import Config
from common.names import MAX_NAME_LENGTH
from common.nodes import OnError, ProcessorNode, ProcessorType
from common.topic_names import TopicNames, collision_key
from common.yaml_positions import Located, Problems
from streams.pipeline.entries import Entry
from streams.pipeline.file import PipelineFile
from streams.pipeline.graph import arcs_of


@dataclass(frozen=True, slots=True)
class _Use:
    """A topic and what it is for; `at` is None for a topic that config.yaml names."""

    name: str
    purpose: str
    at: Located | None


def check_topics(
    pipeline: PipelineFile, nodes: Sequence[ProcessorNode], config: Config, problems: Problems
) -> None:
    """Report names that are too long, that Kafka cannot tell apart, or that are taken.

    Also reports processors that have one topic as two inputs, or as input and output.
    """
    names = config.topic_names
    first: dict[str, _Use] = {}
    for use in (
        *_named_by_config(names),
        *_named_by_user(pipeline, nodes, names),
        *_named_by_entries(pipeline.entries, names),
        *_named_by_nodes(pipeline, nodes, names),
    ):
        earlier = first.setdefault(collision_key(use.name), use)
        if use.at is None:
            continue
        if len(use.name) > MAX_NAME_LENGTH:
            problems.add(
                use.at,
                f"{use.purpose} needs a topic name of {len(use.name)} characters, "
                f"Kafka takes at most {MAX_NAME_LENGTH}: shorten the ids",
            )
        owner = names.reserved_for(use.name)
        if owner:
            problems.add(
                use.at, f'{use.purpose} needs the topic "{use.name}", which is {owner}: rename it'
            )
        elif earlier is not use:
            problems.add(use.at, _collision(use, earlier))
    for node in nodes:
        _check_inputs(node, _entry_of(node, pipeline), names, problems)


def _named_by_config(names: TopicNames) -> Iterator[_Use]:
    yield _Use(names.source, "the source_topic", None)
    yield _Use(names.sink, "the sink_topic", None)


def _named_by_user(
    pipeline: PipelineFile, nodes: Sequence[ProcessorNode], names: TopicNames
) -> Iterator[_Use]:
    """Return topics of `sources:`, `sinks:` and topologies; several names may share a topic."""
    seen = {names.source, names.sink, ""}
    for name, topic in pipeline.topics.items():
        if topic not in seen:
            seen.add(topic)
            kind = "source" if name in pipeline.sources else "sink"
            yield _Use(topic, f'{kind} "{name}"', pipeline.places[name])
    for node in nodes:
        if node.type is ProcessorType.TOPOLOGY:
            entry = _entry_of(node, pipeline)
            used = (*names.in_topics(node), *names.out_topics(node))
            for name, topic in zip((*node.from_, *node.to), used, strict=True):
                if topic not in seen and topic != names.internal(entry.id, name):
                    seen.add(topic)
                    yield _Use(topic, f'"{node.id}"', entry.at)
            for store, topic in node.global_stores.items():
                if topic not in seen:
                    seen.add(topic)
                    yield _Use(topic, f'the global store "{store}" of "{entry.id}"', entry.at)
            for topic in node.internal_topics:
                yield _Use(
                    node.topics[topic], f'the internal topic "{topic}" of "{entry.id}"', entry.at
                )


def _named_by_entries(entries: Sequence[Entry], names: TopicNames) -> Iterator[_Use]:
    arcs = arcs_of(entries)
    for entry in entries:
        for target in arcs[entry.id]:
            arc = f"the arc {entry.id} -> {target.id}"
            yield _Use(names.arc(entry.id, target.id), arc, target.at)


def _named_by_nodes(
    pipeline: PipelineFile, nodes: Sequence[ProcessorNode], names: TopicNames
) -> Iterator[_Use]:
    for node in nodes:
        at = _entry_of(node, pipeline).at
        for store, topic in names.states(node).items():
            of_store = "" if node.type is ProcessorType.COUNT else f' store "{store}" of'
            yield _Use(topic, f'the state of{of_store} "{node.id}"', at)
        if node.on_error is OnError.DEAD_LETTER:
            yield _Use(names.dead_letter(node.id), f'on_error of "{node.id}"', at)


def _entry_of(node: ProcessorNode, pipeline: PipelineFile) -> Entry:
    """Return the entry that a processor comes from; a topology's entry makes several."""
    group = f"-{node.options['group']}" if node.type is ProcessorType.TOPOLOGY else ""
    return next(entry for entry in pipeline.entries if f"{entry.id}{group}" == node.id)


def _check_inputs(node: ProcessorNode, entry: Entry, names: TopicNames, problems: Problems) -> None:
    places = {target.id: target.at for target in (*entry.sources, *entry.targets)}
    read: dict[str, str] = {}
    for name, topic in zip(node.from_, names.in_topics(node), strict=True):
        earlier = read.setdefault(topic, name)
        if earlier != name:
            problems.add(
                places.get(name, entry.at),
                f'"{node.id}" reads the topic "{topic}" twice, as "{earlier}" and as "{name}": '
                "name one of them",
            )
    for name, topic in zip(node.to, names.out_topics(node), strict=True):
        place = places.get(name, entry.at)
        if topic in read and not problems.found_at(place):
            problems.add(
                place,
                f'"{node.id}" sends to the topic "{topic}", which it reads itself',
            )


def _collision(use: _Use, earlier: _Use) -> str:
    where = f" (line {earlier.at.line})" if earlier.at else ""
    if use.name == earlier.name:
        return (
            f'{use.purpose} needs the topic "{use.name}", which is that of '
            f"{earlier.purpose}{where}: rename one"
        )
    return (
        f'{use.purpose} needs the topic "{use.name}", and {earlier.purpose}{where} '
        f'"{earlier.name}": they differ only in "." and "_", which Kafka refuses'
    )

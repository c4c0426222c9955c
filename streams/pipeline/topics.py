"""Checks that every topic of a pipeline has a name of its own that Kafka takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.config import Config
from common.nodes import COUNT_STORE, OnError, ProcessorNode
from common.topics import MAX_NAME_LENGTH, TopicNames, collision_key
from common.yaml_positions import Located, Problems
from streams.pipeline.entries import Entry
from streams.pipeline.file import PipelineFile
from streams.pipeline.graph import arcs_of


@dataclass(frozen=True, slots=True)
class _Use:
    """A topic and what it is for; `at` is None for one that config.yaml names."""

    name: str
    purpose: str
    at: Located | None


def check_topics(
    pipeline: PipelineFile, nodes: Sequence[ProcessorNode], config: Config, problems: Problems
) -> None:
    """Report names that are too long, that Kafka cannot tell apart, or that are taken."""
    names = TopicNames.of(config)
    first: dict[str, _Use] = {}
    for use in (
        *_named_by_config(names),
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


def _named_by_config(names: TopicNames) -> Iterator[_Use]:
    yield _Use(names.source, "the source_topic", None)
    yield _Use(names.sink, "the sink_topic", None)


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
        # The id of a group of a topology begins with that of its entry.
        at = next(
            entry.at
            for entry in pipeline.entries
            if node.id == entry.id or node.id.startswith(f"{entry.id}-")
        )
        for store, topic in names.states(node).items():
            of_store = "" if store == COUNT_STORE else f' store "{store}" of'
            yield _Use(topic, f'the state of{of_store} "{node.id}"', at)
        if node.on_error is OnError.DEAD_LETTER:
            yield _Use(names.dead_letter(node.id), f'on_error of "{node.id}"', at)


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

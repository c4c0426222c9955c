"""Checks that every topic of a pipeline has a unique name that Kafka accepts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_pipeline.common.config.yaml_positions import Located, Problems
from kafka_pipeline.common.names import MAX_NAME_LENGTH
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.topic_names import TopicNames, collision_key
from kafka_pipeline.streams.pipeline.graph import arcs_of
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of

Made = tuple[Entry, PipelineProcessor]
"""A processor and the entry that it comes from; that of a topology makes several."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A topic and what it is for; `at` is None for a topic that config.yaml names."""

    name: str
    purpose: str
    at: Located | None


def check_topics(
    file: PipelineFile, pipeline: Pipeline, made: Sequence[Made], problems: Problems
) -> None:
    """Report names that are too long, that Kafka cannot tell apart, or that are taken.

    Also reports processors that have one topic as two inputs.
    """
    names = pipeline.names
    first: dict[str, _Use] = {}
    for use in (
        *_named_by_config(names),
        *_named_by_user(file, pipeline, made),
        *_named_by_entries(file.entries, names),
        *_named_by_processors(pipeline, made),
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
    for entry, processor in made:
        _check_inputs(processor, entry, pipeline, problems)


def _named_by_config(names: TopicNames) -> Iterator[_Use]:
    yield _Use(names.source, "the source_topic", None)
    yield _Use(names.sink, "the sink_topic", None)


def _named_by_user(file: PipelineFile, pipeline: Pipeline, made: Sequence[Made]) -> Iterator[_Use]:
    """Return topics of `sources:`, `sinks:` and topologies; several names may share a topic."""
    names = pipeline.names
    seen = {names.source, names.sink, ""}
    for name, topic in file.topics.items():
        if topic not in seen:
            seen.add(topic)
            kind = "source" if name in file.sources else "sink"
            yield _Use(topic, f'{kind} "{name}"', file.places[name])
    for entry, processor in made:
        if kind_of(entry.spec).names_topics:
            used = (*pipeline.in_topics(processor), *pipeline.out_topics(processor))
            for name, topic in zip((*processor.from_, *processor.to), used, strict=True):
                if topic not in seen and topic != names.internal(entry.id, name):
                    seen.add(topic)
                    yield _Use(topic, f'"{processor.id}"', entry.at)
            for store, topic in processor.global_stores.items():
                if topic not in seen:
                    seen.add(topic)
                    yield _Use(topic, f'the global store "{store}" of "{entry.id}"', entry.at)
        for topic in processor.internal_topics:
            yield _Use(
                processor.topics[topic], f'the internal topic "{topic}" of "{entry.id}"', entry.at
            )


def _named_by_entries(entries: Sequence[Entry], names: TopicNames) -> Iterator[_Use]:
    arcs = arcs_of(entries)
    for entry in entries:
        for target in arcs[entry.id]:
            arc = f"the arc {entry.id} -> {target.id}"
            yield _Use(names.arc(entry.id, target.id), arc, target.at)


def _named_by_processors(pipeline: Pipeline, made: Sequence[Made]) -> Iterator[_Use]:
    for entry, processor in made:
        at = entry.at
        for store, topic in pipeline.state_topics(processor).items():
            of_store = "" if store == processor.spec.sole_store else f' store "{store}" of'
            yield _Use(topic, f'the state of{of_store} "{processor.id}"', at)
        if dead_letters := pipeline.dead_letter_topic(processor):
            yield _Use(dead_letters, f'on_error of "{processor.id}"', at)


def _check_inputs(
    processor: PipelineProcessor, entry: Entry, pipeline: Pipeline, problems: Problems
) -> None:
    places = {target.id: target.at for target in entry.sources}
    read: dict[str, str] = {}
    for name, topic in pipeline.inputs(processor).items():
        earlier = read.setdefault(topic, name)
        if earlier != name:
            problems.add(
                places.get(name, entry.at),
                f'"{processor.id}" reads the topic "{topic}" twice, as "{earlier}" and as '
                f'"{name}": name one of them',
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

"""Processors that get other ids: values only, nothing here asks Kafka."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.topic_names import TopicNames


def renames(before: Pipeline | None, after: Pipeline) -> dict[str, str]:
    """Return the former ids of those processors that are to be renamed, by the new ones.

    A `was` has no effect once the processor runs under its new id, or if the job does not have the
    former one.
    """
    had = {processor.id for processor in before.processors} if before else set()
    has = {processor.id for processor in after.processors}
    return {new: old for new, old in after.renames.items() if new in has - had and old in had - has}


def with_new_ids(before: Pipeline, after: Pipeline) -> Pipeline:
    """Return the former pipeline with the ids and internal topics that `after` gives to it."""
    found = renames(before, after)
    if not found:
        return before
    # Targets may name the entry that a processor was made of.
    names = {old: new for new, old in after.renames.items()}
    new_ids = {old: new for new, old in found.items()}
    later = {processor.id: processor for processor in after.processors}
    internal = {each.topics[t] for each in before.processors for t in each.internal_topics}
    renamed = tuple(
        _renamed(each, later.get(new_ids.get(each.id, "")), names, internal, before.names)
        for each in before.processors
    )
    topics = {
        each.topics[name]: new.topics[name]
        for each, new in zip(before.processors, renamed, strict=True)
        for name in each.internal_topics
    }
    counts = {topics.get(topic, topic): count for topic, count in before.partitions.items()}
    return replace(before, processors=renamed, partitions=counts)


def _renamed(
    processor: PipelineProcessor,
    later: PipelineProcessor | None,
    names: Mapping[str, str],
    internal: Collection[str],
    topic_names: TopicNames,
) -> PipelineProcessor:
    def topic_of(name: str, topic: str) -> str:
        # Of a query that is two processors, the first one reads the topics to the query.
        query = processor.entry
        if topic == topic_names.arc(name, query):
            return topic_names.arc(names.get(name, name), names.get(query, query))
        return later.topics.get(name, topic) if later and topic in internal else topic

    return replace(
        processor,
        id=processor.id if later is None else later.id,
        to=tuple(names.get(name, name) for name in processor.to),
        from_=tuple(names.get(name, name) for name in processor.from_),
        topics={
            names.get(name, name): topic_of(name, topic) for name, topic in processor.topics.items()
        },
        looked_up=tuple(names.get(name, name) for name in processor.looked_up),
        led_to_by={
            names.get(name, name): tuple(names.get(each, each) for each in inputs)
            for name, inputs in processor.led_to_by.items()
        },
        gives={names.get(name, name): kind for name, kind in processor.gives.items()},
    )

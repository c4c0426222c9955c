"""The partition counts of a pipeline's topics, and the rules that they must follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from common.errors import ConfigError
from common.pipeline import Pipeline
from streams.pipeline.kinds.registry import kind_of


def with_counts(pipeline: Pipeline, existing: Mapping[str, int]) -> Pipeline:
    """Return the pipeline with these partition counts; other topics have `parallelism`.

    Raises `ConfigError` if topics that must have equal counts do not (`check_co_partitioning`).
    """
    others = {topic: count for topic, count in existing.items() if count != pipeline.parallelism}
    found = _with_internal(replace(pipeline, partitions={**pipeline.partitions, **others}))
    check_co_partitioning(found)
    return found


def _with_internal(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with partition counts for the internal topics that have none yet.

    A topic that is read together with others, for a join, has as many partitions as those. Any
    other one has as many as the largest topic that leads to it.
    """
    processors = pipeline.processors
    internal = {each.topics[topic] for each in processors for topic in each.internal_topics}
    unknown = internal - pipeline.partitions.keys()
    counts = {**pipeline.partitions, **_joined(pipeline, unknown)}
    unknown -= counts.keys()
    counts |= dict.fromkeys(unknown, 0)
    # Each round settles at least the next topic of a chain.
    for _ in unknown:
        for each in processors:
            inputs = pipeline.in_topics(each)
            largest = max(counts.get(topic, pipeline.parallelism) for topic in inputs)
            for topic in unknown.intersection((*inputs, *pipeline.out_topics(each))):
                counts[topic] = max(counts[topic], largest)
    return replace(
        pipeline,
        partitions={topic: count for topic, count in counts.items() if count},
    )


def _joined(pipeline: Pipeline, unknown: set[str]) -> dict[str, int]:
    """Return the counts of the unknown topics that are read together with other topics."""
    counts: dict[str, int] = {}
    for processor in pipeline.processors:
        inputs = pipeline.in_topics(processor)
        known = [pipeline.partitions_of(topic) for topic in inputs if topic not in unknown]
        if known:
            counts |= dict.fromkeys(unknown.intersection(inputs), max(known))
    return counts


def check_co_partitioning(pipeline: Pipeline) -> None:
    """Raise `ConfigError` for user code that reads topics with different partition counts.

    Records of one key would go to different tasks, and those that belong together would not meet.
    The engine's own types look at one record at a time, or at all of one key from one topic.
    """
    for processor in pipeline.processors:
        counts = {topic: pipeline.partitions_of(topic) for topic in pipeline.in_topics(processor)}
        as_they_are = kind_of(processor.spec).takes_records_as_they_are
        takes_any = as_they_are and not processor.is_stateful
        if len(set(counts.values())) > 1 and not takes_any:
            listed = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
            raise ConfigError(
                f'"{processor.id}" reads topics with different numbers of partitions: {listed}. '
                "Records of one key would be spread over different tasks: give all of them as "
                "many, or let a processor in between spread them anew"
            )

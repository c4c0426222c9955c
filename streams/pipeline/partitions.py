"""The partition counts of a pipeline's topics, and the rules that they must follow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of


def with_counts(
    pipeline: Pipeline, existing: Mapping[str, int], internal: Mapping[str, int] = {}
) -> Pipeline:
    """Return the pipeline with these partition counts; other topics have `parallelism`.

    `internal` is for internal topics that have no number of their own and meet no other topics.
    Raises `ConfigError` if topics that must have equal counts do not (`check_co_partitioning`).
    """
    found = _with_internal(_counted(pipeline, existing), internal)
    check_co_partitioning(found)
    return found


def with_more_partitions(pipeline: Pipeline, counts: Mapping[str, int]) -> Pipeline:
    """Return the pipeline with those sources' new partitions that its processors may take up.

    `counts` has the sources that have more than the pipeline knows. A source is left as it is if a
    processor that reads it has state, since keys moved to other partitions when it grew and their
    state did not; if it fills a global store; if it is read from its end, as records that have come
    meanwhile would be skipped; or if its records meet those of other topics.
    """
    for topic, count in counts.items():
        if all(_takes_more(each, pipeline, topic) for each in pipeline.processors):
            grown = _counted(pipeline, {topic: count})
            with suppress(ConfigError):
                check_co_partitioning(grown)
                pipeline = grown
    return pipeline


def _counted(pipeline: Pipeline, counts: Mapping[str, int]) -> Pipeline:
    """Return the pipeline with these counts; those that equal `parallelism` need no entry."""
    all_ = {**pipeline.partitions, **counts}
    return replace(
        pipeline,
        partitions={
            topic: count
            for topic, count in all_.items()
            if topic not in counts or count != pipeline.parallelism
        },
    )


def _takes_more(processor: PipelineProcessor, pipeline: Pipeline, topic: str) -> bool:
    names = dict(zip(pipeline.in_topics(processor), processor.from_, strict=True))
    if topic not in names:
        return topic not in processor.global_stores.values()
    source = processor.sources.get(names[topic])
    begins = source.auto_offset_reset if source else "earliest"
    return begins == "earliest" and not processor.is_stateful


def _with_internal(pipeline: Pipeline, given: Mapping[str, int]) -> Pipeline:
    """Return the pipeline with partition counts for the internal topics that have none yet.

    Such a topic has as many partitions as those that its records meet by key. If it meets none, or
    only others of its kind, it has the number that is `given` for any of them, or else as many as
    the largest topic that leads to any of them.
    """
    processors = pipeline.processors
    internal = {each.topics[topic] for each in processors for topic in each.internal_topics}
    unknown = internal - pipeline.partitions.keys()
    meetings = [topics for each in processors for _, topics in _meetings(pipeline, each)]
    counts = {**pipeline.partitions, **dict.fromkeys(unknown, 0)}

    def settle() -> None:
        # Each round settles at least the next topic of a chain.
        for _ in range(len(unknown)):
            for topics in meetings:
                settled = [counts.get(t, pipeline.parallelism) for t in topics if t not in unknown]
                for topic in unknown.intersection(topics) if settled else ():
                    counts[topic] = settled[0]
                    unknown.remove(topic)

    settle()
    for topic in sorted(given.keys() & unknown):
        if topic in unknown:
            counts[topic] = given[topic]
            unknown.remove(topic)
            settle()
    for _ in range(len(internal)):
        for each in processors:
            inputs = pipeline.in_topics(each)
            sizes = (counts.get(topic, pipeline.parallelism) for topic in inputs)
            largest = max(sizes, default=0)
            for topic in unknown.intersection(pipeline.out_topics(each)):
                counts[topic] = max(counts[topic], largest)
        for topics in meetings:
            alike = unknown.intersection(topics)
            counts |= dict.fromkeys(alike, max((counts[topic] for topic in alike), default=0))
    return replace(
        pipeline,
        partitions={topic: count for topic, count in counts.items() if count},
    )


def check_co_partitioning(pipeline: Pipeline) -> None:
    """Raise `ConfigError` for steps that read topics with different partition counts by key.

    Records of one key would go to different tasks, and those that belong together would not meet.
    """
    for processor in pipeline.processors:
        for who, topics in _meetings(pipeline, processor):
            check_equal(who, {topic: pipeline.partitions_of(topic) for topic in topics})


def check_equal(who: str, counts: Mapping[str, int]) -> None:
    """Raise `ConfigError` if topics whose records meet have different partition counts."""
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
        raise ConfigError(
            f"{who} reads topics with different numbers of partitions: {listed}. "
            "Records of one key would be spread over different tasks: give all of them as "
            "many, or let a processor in between spread them anew"
        )


def check_given_counts(pipeline: Pipeline, processor: PipelineProcessor) -> None:
    """Raise `ConfigError` for what is wrong with a processor whatever the users' topics have."""
    given: Collection[str] = pipeline.partitions
    for who, topics in _meetings(pipeline, processor):
        check_equal(who, {t: pipeline.partitions_of(t) for t in topics if t in given})


def _meetings(
    pipeline: Pipeline, processor: PipelineProcessor
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield topics that need as many partitions, with who needs it.

    The engine's own types look at one record at a time, or at all of one key from one topic. Steps
    of the DSL say which topics meet. All other code may bring together whatever it reads.
    """
    topics = pipeline.inputs(processor)
    if processor.meetings is not None:
        for meeting in processor.meetings:
            who = f'"{meeting.step}" of "{processor.id}"'
            yield who, tuple(topics[name] for name in meeting.topics)
        return
    as_they_are = kind_of(processor.spec).takes_records_as_they_are
    if processor.is_stateful or not as_they_are:
        yield f'"{processor.id}"', tuple(topics.values())

"""What a query that groups records becomes: one processor, or two with a topic in between."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.processors import SINK, LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import GROUPS_TOPIC, GroupingSpec, SparkSpec
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile


def check_late(entry: Entry, late_to: str | None, file: PipelineFile, problems: Problems) -> None:
    """Report a `late_to` that is not a sink, or that gets the results too."""
    if late_to is None:
        return
    sinks = (SINK, *file.sinks)
    if late_to not in sinks:
        hint = did_you_mean(late_to, sinks)
        problems.add(entry.at, f'"{entry.id}": late_to names no sink, got "{late_to}"{hint}')
    elif late_to in {target.id for target in entry.targets}:
        problems.add(
            entry.at,
            f'"{entry.id}": late_to is "{late_to}", where the results go: give late records a sink '
            "of their own",
        )


def with_late(
    processor: PipelineProcessor, late_to: str | None, file: PipelineFile
) -> PipelineProcessor:
    """Return a processor that also sends to `late_to`, if it is given."""
    if late_to is None:
        return processor
    topics = {name: file.topics[name] for name in (late_to,) if name in file.topics}
    return replace(processor, to=(*processor.to, late_to), topics={**processor.topics, **topics})


def with_groups(
    processor: PipelineProcessor,
    grouping: GroupingSpec,
    file: PipelineFile,
    names: TopicNames,
    front_stores: tuple[LoggedStore, ...],
    problems: Problems,
    entry: Entry,
) -> list[PipelineProcessor]:
    """Return the processors of a query: one, or two with an internal topic in between.

    The first one of two has the `front_stores`, whose rows it looks up by the keys of records.
    """
    if grouping.stage == "whole":
        return [with_late(processor, grouping.late_to, file)]
    late = () if grouping.late_to is None else (grouping.late_to,)
    late_topics = {name: file.topics[name] for name in late if name in file.topics}
    assert isinstance(processor.spec, SparkSpec)
    between = {GROUPS_TOPIC: names.internal(processor.id, GROUPS_TOPIC)}
    id_ = f"{processor.id}-rows"
    if wrong := name_problem(id_):
        problems.add(entry.at, f'the id "{id_}" of the processor in front of the groups {wrong}')
    senders = {other.id for other in file.entries}
    arcs = {name: names.arc(name, processor.id) for name in processor.from_ if name in senders}
    read = {name: topic for name, topic in processor.topics.items() if name in processor.from_}
    front = replace(
        processor,
        id=id_,
        spec=structs.replace(processor.spec, grouping=structs.replace(grouping, stage="rows")),
        to=(GROUPS_TOPIC, *late),
        topics={**read, **arcs, **late_topics, **between},
        stores=front_stores,
        meetings=None if front_stores else (),
    )
    written = {name: topic for name, topic in processor.topics.items() if name in processor.to}
    back = replace(processor, from_=(GROUPS_TOPIC,), topics={**written, **between}, sources={})
    return [front, back]

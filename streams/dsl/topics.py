"""Steps that read and write topics: sources, sinks, and repartition topics in between."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.common.pipelines.specs import OffsetReset
from kafka_pipeline.streams.dsl.graph import ANY_TOPIC, Compiling, Operation, Step
from kafka_pipeline.streams.engine.nodes import TopicChooser
from kafka_pipeline.streams.partitioning import PartitionFunction, StreamPartitioner
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.timestamps import ExtractorFunction, TimestampExtractor


@dataclass(frozen=True, slots=True)
class ReadTopics(Operation):
    """Reads topics, or all topics that match a pattern."""

    verb = "stream"
    keeps_places = True

    topics: tuple[str, ...] | re.Pattern[str]
    timestamp_extractor: TimestampExtractor | ExtractorFunction
    auto_offset_reset: OffsetReset
    feedback: bool

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a source, unless nothing comes of it."""
        if not compiler.children(step):
            return
        compiler.builder.add_source(
            step.name,
            self.topics,
            key_serde=step.key_serde,
            value_serde=step.value_serde,
            timestamp_extractor=self.timestamp_extractor,
            auto_offset_reset=self.auto_offset_reset,
            feedback=self.feedback,
        )
        compiler.produces(step, step.name)


def topics_read_for(step: Step) -> list[str]:
    """Return the topics and patterns whose records come to a step, sorted."""
    found, steps, seen = set[str](), [step], set[Step]()
    while steps:
        each = steps.pop()
        if each in seen:
            continue
        seen.add(each)
        steps += each.parents
        if isinstance(each.operation, ReadTopics):
            topics = each.operation.topics
            found.update([topics.pattern] if isinstance(topics, re.Pattern) else topics)
    return sorted(found)


@dataclass(frozen=True, slots=True)
class WriteTopic(Operation):
    """Writes a stream to a topic."""

    verb = "to"

    topic: str | TopicChooser
    partitioner: StreamPartitioner[Any, Any] | PartitionFunction | None
    topics: Sequence[str]

    @property
    def writes_topic(self) -> str:
        """The topic, if it is known."""
        return self.topic if isinstance(self.topic, str) else ANY_TOPIC

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a sink."""
        compiler.builder.add_sink(
            step.name,
            self.topic,
            compiler.parents(step),
            topics=self.topics,
            key_serde=step.key_serde,
            value_serde=step.value_serde,
            partitioner=self.partitioner,
        )


@dataclass(frozen=True, slots=True)
class Repartition(Operation):
    """Writes a topic of the topology's own, and reads it in another group.

    The topic is called `<name>-repartition`, and the source has the name itself, which is then also
    that of the tasks after it. `wire` makes the serde of the values in the topic from that of the
    step; tables send changes. `by_key` says that equal keys go to equal partitions.
    """

    verb = "repartition"
    begins_group = True
    keeps_places = True

    partitions: int | None = None
    partitioner: StreamPartitioner[Any, Any] | PartitionFunction | None = None
    wire: Callable[[Serde[Any]], Serde[Any]] | None = None
    by_key: bool = True

    def after_key(self, parents: Sequence[Step]) -> int:
        """Return 0: the whole key decides about the partition in the topic."""
        return 0

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a sink, a topic and a source."""
        topic = repartition_topic(step.name)
        value_serde = step.value_serde if self.wire is None else self.wire(step.value_serde)
        builder = compiler.builder
        builder.add_internal_topic(topic, self.partitions)
        builder.add_sink(
            f"{step.name}-sink",
            topic,
            compiler.parents(step),
            key_serde=step.key_serde,
            value_serde=value_serde,
            partitioner=self.partitioner,
        )
        builder.add_source(step.name, topic, key_serde=step.key_serde, value_serde=value_serde)
        compiler.produces(step, step.name)


def repartition_topic(name: str) -> str:
    """Return the topic of the repartition step `name`."""
    return f"{name}-repartition"

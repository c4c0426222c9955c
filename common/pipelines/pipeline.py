"""A pipeline with all its processors, topics and tasks, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, ArcKind, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.topics import (
    RECORDS,
    RECORDS_NEED,
    STATE_NEEDS,
    TopicSpec,
    state_policy,
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked pipeline: no cycles, and every processor lies between source and sink.

    `processors` are in topological order; where that leaves a choice, in file order. `partitions`
    has the partition counts that differ from `parallelism`, by topic. `renames` maps the current
    ids of processors and their parts to former ids. It describes one change, so stored versions of
    a pipeline leave it out.
    """

    processors: tuple[PipelineProcessor, ...]
    names: TopicNames
    parallelism: int
    partitions: Mapping[str, int] = field(default_factory=dict, hash=False)
    renames: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)

    def processor(self, processor_id: str) -> PipelineProcessor:
        """Return the processor with this id; raises KeyError if there is none."""
        for processor in self.processors:
            if processor.id == processor_id:
                return processor
        raise KeyError(processor_id)

    def partitions_of(self, topic: str) -> int:
        """Return the number of partitions that a topic has, or will be created with."""
        return self.partitions.get(topic, self.parallelism)

    def places(self, topic: str) -> list[tuple[str, int]]:
        """Return the partitions of a topic, each with the topic's name."""
        return [(topic, number) for number in range(self.partitions_of(topic))]

    def inputs(self, processor: PipelineProcessor) -> dict[str, str]:
        """Return the topics that a processor reads, by their names in `from_`."""
        return dict(zip(processor.from_, self.in_topics(processor), strict=True))

    def in_topics(self, processor: PipelineProcessor) -> tuple[str, ...]:
        """Return the topics that a processor reads, in the order of its `from_`."""
        return tuple(
            self.names.source
            if name == SOURCE
            else processor.topics.get(name) or self.names.arc(name, processor.id)
            for name in processor.from_
        )

    def out_topics(self, processor: PipelineProcessor) -> tuple[str, ...]:
        """Return the topics that a processor writes, in the order of its `to`."""
        return tuple(
            self.names.sink
            if name == SINK
            else processor.topics.get(name) or self.names.arc(processor.id, name)
            for name in processor.to
        )

    def kinds_given(self, processor: PipelineProcessor) -> dict[str, ArcKind]:
        """Return what a processor gives to each topic that it writes."""
        topics = zip(processor.to, self.out_topics(processor), strict=True)
        return {topic: processor.gives.get(name, ArcKind.RECORDS) for name, topic in topics}

    def kind_of_source(self, topic: str, reader: PipelineProcessor) -> ArcKind:
        """Return what a reader takes the records of a source for.

        If the pipeline writes the topic itself, they are what its processors give.
        """
        names = self.inputs(reader).items()
        if any(
            name in reader.sources and reader.sources[name].is_table
            for name, its_topic in names
            if its_topic == topic
        ):
            return ArcKind.UPSERTS
        given = [self.kinds_given(writer).get(topic) for writer in self.processors]
        return next(filter(None, given), ArcKind.RECORDS)

    def query_of_stage(self, processor: PipelineProcessor) -> str:
        """Return the id of the query that a processor is an inner stage of; "" if of none."""
        arcs, found = self.arcs, processor
        while isinstance(found.spec, SqlSpec) and found.spec.is_inner:
            found = self.processor(arcs[self.out_topics(found)[0]])
        return "" if found is processor else found.entry

    def feedback_topics(self, processor: PipelineProcessor) -> frozenset[str]:
        """Return the topics that a processor reads by which its own records may come back."""
        topics = self.inputs(processor).items()
        sources = processor.sources
        return frozenset(
            topic for name, topic in topics if name in sources and sources[name].feedback
        )

    def looked_up_topics(self, processor: PipelineProcessor) -> tuple[str, ...]:
        """Return the topics that say nothing about event time; see `PipelineProcessor`."""
        topics = self.inputs(processor).items()
        return tuple(topic for name, topic in topics if name in processor.looked_up)

    def read_topics(self, processor: PipelineProcessor) -> tuple[str, ...]:
        """Return all topics that the tasks of a processor read, and those of its global stores."""
        return (*self.in_topics(processor), *processor.global_stores.values())

    def state_topics(self, processor: PipelineProcessor) -> dict[str, str]:
        """Return the state topics of a processor, by store name."""
        sole = processor.spec.sole_store
        return {
            store.name: self.names.state(processor.id, None if store.name == sole else store.name)
            for store in processor.stores
        }

    def dead_letter_topic(self, processor: PipelineProcessor) -> str | None:
        """Return the topic for the records that a processor rejects, if it has one."""
        if processor.on_error.writes_dead_letters:
            return self.names.dead_letter(processor.id)
        return None

    @property
    def arcs(self) -> dict[str, str]:
        """The topics between all processors, each with the id of its reader."""
        between = {
            self.names.arc(processor.id, to): to
            for processor in self.processors
            for to in processor.to
            if to != SINK and to not in processor.topics
        }
        # Records sent to a query may go to another processor first, which makes rows of groups.
        between |= {
            topic: processor.id
            for processor in self.processors
            for topic in self.in_topics(processor)
            if topic in between
        }
        internal = {
            processor.topics[topic]: processor.id
            for processor in self.processors
            for topic in processor.internal_topics
        }
        return between | internal

    @property
    def uncounted_topics(self) -> set[str]:
        """The internal topics whose number of partitions is not set."""
        return {
            processor.topics[topic]
            for processor in self.processors
            for topic, count in processor.internal_topics.items()
            if count is None
        }

    def task_count(self, processor: PipelineProcessor) -> int:
        """Return the number of a processor's tasks: the partitions of its largest input topic.

        It is 0 if the processor reads by patterns that were not yet matched against the cluster.
        """
        return max(map(self.partitions_of, self.in_topics(processor)), default=0)

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks, in the order of processors and partitions."""
        return tuple(
            TaskId(processor.id, number)
            for processor in self.processors
            for number in range(self.task_count(processor))
        )

    @property
    def user_topics(self) -> tuple[str, ...]:
        """The sources and sinks, which belong to the user."""
        arcs = self.arcs
        used = (
            topic
            for processor in self.processors
            for topic in (*self.read_topics(processor), *self.out_topics(processor))
        )
        return tuple(dict.fromkeys(topic for topic in used if topic not in arcs))

    @property
    def all_topics(self) -> list[str]:
        """The names of `data_topics`."""
        return [spec.name for spec in self.data_topics(1)]

    def data_topics(self, replication_factor: int) -> tuple[TopicSpec, ...]:
        """Return the topics that hold records and state, as they should exist.

        In order: sources, arcs, state topics (compacted), dead letters, sinks. They have
        `partitions_of(topic)` partitions; state topics have one for each task. Sources and sinks
        belong to the user: missing ones are created with the broker's defaults, or compacted if
        only global stores read them.
        """

        def spec(
            name: str,
            policy: Mapping[str, str],
            needs: frozenset[str] = frozenset(),
            count: int | None = None,
        ) -> TopicSpec:
            partitions = count or self.partitions_of(name)
            return TopicSpec(name, partitions, replication_factor, policy, needs)

        processors, arcs = self.processors, self.arcs
        read = {topic for each in processors for topic in self.in_topics(each)}
        followed = {t for each in processors for t in each.global_stores.values()} - read
        sources = dict.fromkeys(topic for each in processors for topic in self.read_topics(each))
        sinks = dict.fromkeys(topic for each in processors for topic in self.out_topics(each))
        dead = [topic for each in processors if (topic := self.dead_letter_topic(each))]
        return (
            *(
                spec(name, {"cleanup.policy": "compact"} if name in followed else {})
                for name in sources
                if name not in arcs
            ),
            *(spec(name, RECORDS, RECORDS_NEED) for name in arcs),
            *(
                spec(
                    self.state_topics(each)[store.name],
                    state_policy(store.topic_config),
                    STATE_NEEDS,
                    self.task_count(each),
                )
                for each in processors
                for store in each.stores
            ),
            *(spec(name, RECORDS) for name in dead),
            *(spec(name, {}) for name in sinks if name not in arcs and name not in sources),
        )

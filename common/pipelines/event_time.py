"""The sources of event time: who writes the topics that a processor reads, and who needs time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from kafka_pipeline.common.pipelines.specs import ProcessorSpec, SparkSpec, TopologySpec
from kafka_pipeline.common.typed_json import Name, Positive, Strict

if TYPE_CHECKING:
    from kafka_pipeline.common.pipelines.pipeline import Pipeline
    from kafka_pipeline.common.pipelines.processors import PipelineProcessor

_BY_TIME = ("times", "join_times", "numbered_times")
"""The spreading rules of stores that hold the event time of steps."""


class Writer(Strict, frozen=True, kw_only=True):
    """A processor whose tasks write a topic: task i reads partition i of each of its `inputs`.

    `inputs` maps topics to their numbers of partitions, without those that say nothing about event
    time: those of feedback sources, and those that are only looked up.
    `internal` maps those that the job itself writes to the processors that read their records from
    sources, sorted. Records of the topics in `feedback` may depend on records of the reader for
    whom this is made: it must not wait for them.
    """

    processor: Name
    inputs: Mapping[Name, Positive]
    internal: Mapping[Name, tuple[Name, ...]] = {}
    feedback: tuple[Name, ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks that write the topic."""
        return max(self.inputs.values(), default=0)

    def origins(self, topic: str) -> frozenset[str]:
        """Return the processors that read the records of an input from sources."""
        return frozenset(self.internal.get(topic, (self.processor,)))


class EventTimeSpec(Strict, frozen=True, kw_only=True):
    """The writers of the internal topics that a processor reads, by topic.

    A processor has no such value if neither it nor any processor downstream needs event time. The
    topics in `looked_up` say nothing about it, where it matters: their records only change what
    others look up. `upstream` has the writers of the internal topics ahead of those in `writers`,
    if inputs have different origins: only a reader that sees the sources itself then knows that
    none of its inputs has an unread record.
    """

    writers: Mapping[Name, tuple[Writer, ...]] = {}
    looked_up: tuple[Name, ...] = ()
    upstream: Mapping[Name, tuple[Writer, ...]] = {}

    @property
    def all_writers(self) -> Iterator[Writer]:
        """All writers, with those of the topics upstream."""
        return chain.from_iterable((*self.writers.values(), *self.upstream.values()))

    def returning_to(self, processor: str) -> frozenset[str]:
        """Return the internal topics whose records may depend on those of the processor itself."""
        return frozenset(
            topic
            for topic, writers in self.writers.items()
            if any(each.feedback or each.processor == processor for each in writers)
        )

    def origins(self, topic: str, *, with_feedback: bool = True) -> frozenset[str]:
        """Return the processors that read the records of an internal topic from sources."""
        return frozenset().union(
            *(
                writer.origins(each)
                for writer in self.writers[topic]
                for each in writer.inputs
                if with_feedback or each not in writer.feedback
            )
        )


def event_times(pipeline: Pipeline) -> dict[str, EventTimeSpec]:
    """Return the writers for each processor that needs event time, or that passes it on."""
    flow = _Flow(pipeline)
    return {
        processor.id: flow.spec(processor)
        for processor in pipeline.processors
        if flow.passes_time(processor)
    }


def need_event_time(pipeline: Pipeline) -> frozenset[str]:
    """Return the processors whose own results depend on event time."""
    flow = _Flow(pipeline)
    return frozenset(each.id for each in pipeline.processors if flow.needs_time(each))


def stores_of_times(processor: PipelineProcessor) -> list[str]:
    """Return the stores of a processor that hold the event time of its steps."""
    return [store.name for store in processor.stores if store.spreading.rule in _BY_TIME]


class _Flow:
    """The flow of records between processors."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        arcs = pipeline.arcs
        self.written: dict[str, list[PipelineProcessor]] = {}
        """The processors that write each internal topic."""
        for each in pipeline.processors:
            for topic in pipeline.out_topics(each):
                if topic in arcs:
                    self.written.setdefault(topic, []).append(each)
        after: dict[str, set[str]] = {each.id: set() for each in pipeline.processors}
        for each in pipeline.processors:
            for topic in pipeline.in_topics(each):
                for writer in self.written.get(topic, ()):
                    after[writer.id].add(each.id)
        self._reached = {each: _closure(after, each) for each in after}
        """The processors that records of each one may reach, including itself."""
        self._after: dict[str, set[str]] = {}
        """The internal topics that are written by those who read a topic."""
        self._led_to: dict[str, set[str]] = {}
        """Those of them for which the records of the topic lead to records."""
        for each in pipeline.processors:
            written = {topic for topic in pipeline.out_topics(each) if topic in arcs}
            for topic in pipeline.in_topics(each):
                self._after.setdefault(topic, set()).update(written)
                led_to = (to for to in written if self._leads(each, topic, to))
                self._led_to.setdefault(topic, set()).update(led_to)
        self._known_origins: dict[str, frozenset[str]] = {}
        """The results of `_origins`."""

    def passes_time(self, processor: PipelineProcessor) -> bool:
        """Return whether a processor, or one downstream of it, needs event time."""
        return any(
            self.needs_time(each)
            for each in self._pipeline.processors
            if each.id in self._reached[processor.id]
        )

    def spec(self, processor: PipelineProcessor) -> EventTimeSpec:
        """Return whose event time a processor goes by."""
        topics = self._pipeline.in_topics(processor)
        written = [topic for topic in topics if topic in self.written]
        writers = {topic: tuple(self.writers(processor, topic)) for topic in written}
        return EventTimeSpec(
            writers=writers,
            looked_up=self.looked_up(processor),
            upstream=self._upstream(processor, writers),
        )

    def _upstream(
        self, processor: PipelineProcessor, writers: Mapping[str, tuple[Writer, ...]]
    ) -> dict[str, tuple[Writer, ...]]:
        """Return the writers of the internal topics ahead of those that a processor reads.

        If all inputs have the same origins, they are not needed: an idle input that does not know
        of records that others know of holds time back anyway.
        """
        inputs = [(each, topic) for of in writers.values() for each in of for topic in each.inputs]
        origins = {each.origins(topic) for each, topic in inputs}
        if set(self._timed(processor)) - writers.keys():
            origins.add(frozenset([processor.id]))
        found: dict[str, tuple[Writer, ...]] = {}
        waiting = [topic for each, topic in inputs if topic in each.internal]
        while waiting and len(origins) > 1:
            topic = waiting.pop()
            if topic not in writers and topic not in found:
                found[topic] = tuple(self.writers(processor, topic))
                waiting += [each for writer in found[topic] for each in writer.internal]
        return found

    def looked_up(self, processor: PipelineProcessor) -> tuple[str, ...]:
        """Return the topics that are only looked up, if that matters.

        It does not where each record moves time on, and nobody downstream asks.
        """
        pipeline = self._pipeline
        topics = {*pipeline.in_topics(processor), *pipeline.out_topics(processor)}
        return () if topics.isdisjoint(self.written) else pipeline.looked_up_topics(processor)

    def writers(self, processor: PipelineProcessor, topic: str) -> Iterator[Writer]:
        """Yield the writers of an internal topic that a processor reads."""
        for writer in self.written[topic]:
            inputs = {
                each: self._pipeline.partitions_of(each) for each in self._inputs(writer, topic)
            }
            internal = {
                each: tuple(sorted(self._origins(each))) for each in inputs if each in self.written
            }
            yield Writer(
                processor=writer.id,
                inputs=inputs,
                internal=internal,
                feedback=tuple(
                    each
                    for each in internal
                    if not self._reached[processor.id].isdisjoint(
                        writer.id for writer in self.written[each]
                    )
                ),
            )

    def _inputs(self, writer: PipelineProcessor, topic: str) -> Iterator[str]:
        """Yield the topics on which it depends how far a writer is with an internal topic.

        Feedback topics are left out, as event time would wait for itself, and so are those that are
        only looked up, as results have the times of other records. So are answers to records of
        the topic itself: in a foreign-key join, a row asks without waiting for earlier answers, but
        an answer comes after the question.
        """
        answers, led_to = _closure(self._after, topic), _closure(self._led_to, topic)
        for each in self._timed(writer):
            asks = self._leads(writer, each, topic) and each not in led_to
            if asks or each not in answers:
                yield each

    def _timed(self, processor: PipelineProcessor) -> list[str]:
        """Return the topics of a processor that say something about event time."""
        pipeline = self._pipeline
        silent = {*pipeline.feedback_topics(processor), *pipeline.looked_up_topics(processor)}
        return [each for each in pipeline.in_topics(processor) if each not in silent]

    def _leads(self, processor: PipelineProcessor, topic: str, to: str) -> bool:
        """Return whether records that a processor reads from a topic lead to those of another."""
        names = zip(processor.to, self._pipeline.out_topics(processor), strict=True)
        leading = next((processor.led_to_by.get(name) for name, its in names if its == to), None)
        inputs = self._pipeline.inputs(processor)
        return leading is None or any(inputs[name] == topic for name in leading)

    def _origins(self, topic: str) -> frozenset[str]:
        """Return the processors that read the records of an internal topic from sources."""
        found: set[str] = set()
        seen = {topic}
        waiting = [topic]
        while waiting:
            asked = waiting.pop()
            known = self._known_origins.get(asked)
            if known is not None:
                found |= known
                continue
            for writer in self.written[asked]:
                for each in self._inputs(writer, asked):
                    if each not in self.written:
                        found.add(writer.id)
                    elif each not in seen:
                        seen.add(each)
                        waiting.append(each)
        origins = self._known_origins[topic] = frozenset(found)
        return origins

    def needs_time(self, processor: PipelineProcessor) -> bool:
        """Return whether a processor itself needs event time."""
        if stores_of_times(processor):
            return True
        if any(store.spreading.time is not None for store in processor.stores):
            return True
        topics = self._pipeline.in_topics(processor)
        waits_for_another = len(topics) > 1 and any(topic in self.written for topic in topics)
        return waits_for_another and processor.is_stateful and _may_look_up(processor.spec)


def _may_look_up(spec: ProcessorSpec) -> bool:
    """Return whether a processor may look up rows, so that its records wait for other inputs."""
    return isinstance(spec, TopologySpec) or (
        isinstance(spec, SparkSpec) and bool(spec.topic_tables)
    )


def _closure(after: Mapping[str, set[str]], start: str) -> set[str]:
    found = {start}
    waiting = [start]
    while waiting:
        for each in after.get(waiting.pop(), set()) - found:
            found.add(each)
            waiting.append(each)
    return found

"""Checks cycles through topics: a job reads what it writes only by a source with `feedback`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.streams.pipeline.kinds.entry import Entry

_HOW = (
    "if its records are to come back, read that topic by a source with `feedback: true`, in a "
    "topology with feedback=True"
)


def check_feedback(
    pipeline: Pipeline, made: Sequence[tuple[Entry, PipelineProcessor]], problems: Problems
) -> None:
    """Report cycles without a feedback source, and feedback sources that are none.

    A feedback source has records that depend on those of its reader. The reader has another input
    too, as feedback does not say how far event time is.
    """
    flow, arcs = _Flow(pipeline), pipeline.arcs
    for entry, processor in made:
        places = {target.id: target.at for target in (*entry.sources, *entry.targets)}
        for name, topic in zip(processor.to, pipeline.out_topics(processor), strict=True):
            place = places.get(name, entry.at)
            if topic in arcs or problems.found_at(place):
                continue
            if cycle := flow.back_to(processor, topic):
                problems.add(place, f'"{processor.id}" sends to the topic "{topic}", {cycle}')
        inputs = pipeline.in_topics(processor)
        feedback = pipeline.feedback_topics(processor)
        for name, topic in zip(processor.from_, inputs, strict=True):
            if topic in feedback and not flow.may_send(processor, topic):
                problems.add(
                    places.get(name, entry.at),
                    f'"{processor.id}" reads the topic "{topic}" as feedback, but sends nothing '
                    "there, directly or by other processors: leave feedback out",
                )
        if feedback and feedback.issuperset(inputs):
            problems.add(
                entry.at,
                f'"{processor.id}" reads feedback alone, which does not say how far event time is: '
                "let it read another source, or what another processor sends",
            )


class _Flow:
    """Which processors get what others send, by topics that are not read as feedback."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._readers: dict[str, list[str]] = {}
        for each in pipeline.processors:
            for topic in pipeline.in_topics(each):
                if topic not in pipeline.feedback_topics(each):
                    self._readers.setdefault(topic, []).append(each.id)
        self._after: Mapping[str, list[str]] = {
            each.id: [
                reader
                for topic in pipeline.out_topics(each)
                for reader in self._readers.get(topic, ())
            ]
            for each in pipeline.processors
        }

    def back_to(self, processor: PipelineProcessor, topic: str) -> str:
        """Return how what a processor sends to a topic reaches it again; "" if it does not."""
        readers = self._readers.get(topic, ())
        if processor.id in readers:
            return f"which it reads itself: {_HOW}"
        for reader in readers:
            if processor.id in self._reached(reader):
                return f'which "{reader}" reads, whose results reach it again: {_HOW}'
        return ""

    def may_send(self, processor: PipelineProcessor, topic: str) -> bool:
        """Return whether a topic gets what is made of a processor's records."""
        reached = set(self._reached(processor.id))
        return any(
            each.id in reached and topic in self._pipeline.out_topics(each)
            for each in self._pipeline.processors
        )

    def _reached(self, start: str) -> Iterator[str]:
        seen, waiting = {start}, [start]
        while waiting:
            here = waiting.pop()
            yield here
            new = [each for each in self._after[here] if each not in seen]
            seen.update(new)
            waiting += new

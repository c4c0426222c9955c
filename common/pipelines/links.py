"""The graph of a pipeline: which topics lead from which processor to which other one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import ArcKind, PipelineProcessor


@dataclass(frozen=True, slots=True)
class Link:
    """A topic, with the ids of a processor that writes it and of one that reads it.

    Without a `writer`, it is a source. Without a `reader`, it is a sink, or `has_dead_letters`.
    `kind` is that of its records.
    """

    topic: str
    writer: str | None
    reader: str | None
    has_dead_letters: bool = False
    kind: ArcKind = ArcKind.RECORDS


def links(pipeline: Pipeline) -> Iterator[Link]:
    """Yield the links of a pipeline: those with readers, then sinks, then dead letters."""
    writers: dict[str, list[PipelineProcessor]] = {}
    given = {each.id: pipeline.kinds_given(each) for each in pipeline.processors}
    for each in pipeline.processors:
        for topic in pipeline.out_topics(each):
            writers.setdefault(topic, []).append(each)
    between = pipeline.arcs
    read = set[str]()
    for reader in pipeline.processors:
        for topic in pipeline.read_topics(reader):
            senders = writers.get(topic, []) if topic in between else []
            if senders:
                read.add(topic)
            for writer in senders:
                yield Link(topic, writer.id, reader.id, kind=given[writer.id][topic])
            if not senders:
                yield Link(topic, None, reader.id, kind=pipeline.kind_of_source(topic, reader))
    for topic, senders in writers.items():
        for writer in senders:
            if topic not in read:
                yield Link(topic, writer.id, None, kind=given[writer.id][topic])
    for each in pipeline.processors:
        dead = pipeline.dead_letter_topic(each)
        if dead is not None:
            yield Link(dead, each.id, None, has_dead_letters=True)

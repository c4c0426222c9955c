"""The graph of processors and topics, with rate and lag on its arcs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_pipeline.common.pipeline import Pipeline
from kafka_pipeline.common.processors import PipelineProcessor
from kafka_pipeline.console.views.figures import figures_of, tasks_of, waits_of
from kafka_pipeline.console.views.snapshot import Snapshot

Json = dict[str, Any]


def graph(snapshot: Snapshot) -> Json:
    """Return nodes, which are processors and topics, the arcs between them, and who waits for whom.

    A topic between two processors is an arc. Heartbeats have the figures of tasks, not those of
    topics. So the rate of an arc is known if it is the only input of its reader or the only output
    of its writer, and its lag if it is the only input of its reader.
    """
    pipeline = snapshot.pipeline
    if pipeline is None:
        return {"nodes": [], "arcs": [], "waits": []}
    figures = {
        each.id: figures_of(snapshot, tasks_of(snapshot, each.id)) for each in pipeline.processors
    }
    nodes = [
        _node("processor", each.id, {"type": each.spec.type, **figures[each.id]})
        for each in pipeline.processors
    ]
    arcs = list(_arcs(pipeline, figures))
    ends = dict.fromkeys(end for arc in arcs for end in (arc["from"], arc["to"]))
    made = {node["id"] for node in nodes}
    dead = {pipeline.dead_letter_topic(each) for each in pipeline.processors}
    for end in ends:
        if end not in made:
            name = end.partition(":")[2]
            nodes.append(_node("dead_letters" if name in dead else "topic", name, {}))
    return {"nodes": nodes, "arcs": arcs, "waits": waits_of(snapshot)}


def _node(kind: str, name: str, figures: Json) -> Json:
    prefix = "processor" if kind == "processor" else "topic"
    return {"id": f"{prefix}:{name}", "kind": kind, "name": name, **figures}


def _arcs(pipeline: Pipeline, figures: dict[str, Json]) -> Iterator[Json]:
    writers: dict[str, list[PipelineProcessor]] = {}
    for each in pipeline.processors:
        for topic in pipeline.out_topics(each):
            writers.setdefault(topic, []).append(each)
    between = pipeline.arcs
    read = set[str]()
    for reader in pipeline.processors:
        for topic in pipeline.read_topics(reader):
            into = _into(pipeline, reader, figures[reader.id])
            senders = writers.get(topic, []) if topic in between else []
            if senders:
                read.add(topic)
            for writer in senders:
                known = {**_out_of(pipeline, writer, figures[writer.id]), **into}
                yield _arc(f"processor:{writer.id}", f"processor:{reader.id}", topic, known)
            if not senders:
                yield _arc(f"topic:{topic}", f"processor:{reader.id}", topic, into)
    for topic, senders in writers.items():
        for writer in senders:
            if topic not in read:
                known = _out_of(pipeline, writer, figures[writer.id])
                yield _arc(f"processor:{writer.id}", f"topic:{topic}", topic, known)
    for each in pipeline.processors:
        dead = pipeline.dead_letter_topic(each)
        if dead is not None:
            known = {"dead_letters": figures[each.id]["dead_letters"]}
            yield _arc(f"processor:{each.id}", f"topic:{dead}", dead, known)


def _into(pipeline: Pipeline, reader: PipelineProcessor, figures: Json) -> Json:
    """Return the figures of an arc that follow from its reader."""
    if len(pipeline.read_topics(reader)) != 1:
        return {}
    return {"rate": figures["rate_in"], "lag": figures["lag"]}


def _out_of(pipeline: Pipeline, writer: PipelineProcessor, figures: Json) -> Json:
    """Return the figures of an arc that follow from its writer."""
    return {"rate": figures["rate_out"]} if len(pipeline.out_topics(writer)) == 1 else {}


def _arc(source: str, target: str, topic: str, known: Json) -> Json:
    figures = {"rate": None, "lag": None, "dead_letters": None, **known}
    return {"from": source, "to": target, "topic": topic, **figures}

"""The parts of a graph as the pages draw it: nodes, and the arcs between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_pipeline.common.pipelines.links import Link

Json = dict[str, Any]


def nodes(processors: Mapping[str, Json], links: Iterable[Link]) -> list[Json]:
    """Return the processors, with what is known of each by its id, and then the topics at ends.

    A topic between two processors is not a node, but an arc.
    """
    topics: dict[str, str] = {}
    for link in links:
        if link.has_dead_letters:
            topics[link.topic] = "dead_letters"
        elif link.writer is None or link.reader is None:
            topics.setdefault(link.topic, "topic")
    return [
        *(_node("processor", id_, known) for id_, known in processors.items()),
        *(_node(kind, topic, {}) for topic, kind in topics.items()),
    ]


def arc(link: Link, known: Json) -> Json:
    """Return the arc of a link, with what is known of it."""
    source = f"topic:{link.topic}" if link.writer is None else f"processor:{link.writer}"
    target = f"topic:{link.topic}" if link.reader is None else f"processor:{link.reader}"
    return {"from": source, "to": target, "topic": link.topic, "kind": str(link.kind), **known}


def _node(kind: str, name: str, known: Json) -> Json:
    prefix = "processor" if kind == "processor" else "topic"
    return {"id": f"{prefix}:{name}", "kind": kind, "name": name, **known}

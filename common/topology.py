"""The topology: its values, and how it is read from pipeline.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.config import Config
from common.nodes import (
    SINK,
    SOURCE,
    OnError,
    ProcessorNode,
    ProcessorType,
    TaskId,
    Topology,
)
from common.pipeline_entries import Entry, read_entries
from common.pipeline_graph import check_graph, topological_order
from common.pipeline_topics import check_topics
from common.yaml_positions import Problems, read_yaml

__all__ = [
    "SINK",
    "SOURCE",
    "OnError",
    "ProcessorNode",
    "ProcessorType",
    "TaskId",
    "Topology",
    "load_pipeline",
]


def load_pipeline(path: Path, config: Config) -> Topology:
    """Return the checked topology of a pipeline.yaml.

    Raises ConfigError with every problem found.
    """
    problems = Problems(path)
    root = read_yaml(path, problems)
    entries = read_entries(root, problems)
    check_graph(root, entries, problems)
    check_topics(entries, config, problems)
    problems.raise_if_any()
    return Topology(tuple(_node(entry, entries) for entry in topological_order(entries)))


def _node(entry: Entry, entries: Sequence[Entry]) -> ProcessorNode:
    return ProcessorNode(
        id=entry.id,
        type=entry.type,
        to=tuple(target.id for target in entry.targets),
        from_=_sources(entry, entries),
        on_error=entry.on_error,
        config=entry.config,
    )


def _sources(entry: Entry, entries: Sequence[Entry]) -> tuple[str, ...]:
    senders = (other.id for other in entries if any(t.id == entry.id for t in other.targets))
    return tuple(senders) or (SOURCE,)

"""pipeline.yaml as a whole: a list of processors, or a map with sources and sinks besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.fields import Fields
from common.nodes import SINK, SOURCE
from common.topics import name_problem
from common.yaml_positions import Items, Map, Problems, Scalar, Value, describe
from streams.pipeline.entries import Entry, read_entries


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """What a pipeline.yaml says; the processors may not fit together.

    `sources` and `sinks` have the topics of those that the file names, besides those of
    config.yaml.
    """

    root: Value
    entries: Sequence[Entry]
    sources: Mapping[str, str]
    sinks: Mapping[str, str]

    @property
    def topics(self) -> Mapping[str, str]:
        """The topics of sources and sinks together; their names differ."""
        return {**self.sources, **self.sinks}

    @property
    def is_whole(self) -> bool:
        """Whether no entry was dropped for a mistake of its own."""
        items = self.root.items if isinstance(self.root, Items) else ()
        return 0 < len(self.entries) == len(items)


def read_pipeline(root: Value, problems: Problems) -> PipelineFile:
    """Return what the file says; each mistake goes to `problems`."""
    if not isinstance(root, Map):
        return PipelineFile(root, read_entries(root, problems), {}, {})
    fields = Fields(root.pairs, problems, at=root, known=("sources", "sinks", "processors"))
    sources = _topics(fields, "sources", SOURCE, problems)
    sinks = _topics(fields, "sinks", SINK, problems)
    processors = fields.require("processors", "a list of processors (`- id: …`)")
    entries = [] if processors is None else read_entries(processors, problems)
    taken = {entry.id for entry in entries}
    for key, topics, others in (
        ("sources", sources, taken),
        ("sinks", sinks, taken | sources.keys()),
    ):
        for name in sorted(topics.keys() & others):
            problems.add(fields.at(key), f'{key}: the name "{name}" is given to something else too')
    return PipelineFile(processors if processors is not None else root, entries, sources, sinks)


def _topics(fields: Fields, key: str, reserved: str, problems: Problems) -> dict[str, str]:
    topics = {}
    for pair in fields.pairs(key):
        value = pair.value
        if pair.key == reserved:
            problems.add(pair.at, f'"{reserved}" is the {reserved}_topic of config.yaml')
        elif not isinstance(value, Scalar) or not isinstance(value.value, str):
            problems.add(value, f"{pair.key} must be the name of a topic, got {describe(value)}")
        elif wrong := name_problem(value.value) or name_problem(pair.key):
            problems.add(value, f'the name of {key[:-1]} "{pair.key}" or of its topic {wrong}')
        else:
            topics[pair.key] = value.value
    return topics

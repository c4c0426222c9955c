"""pipeline.yaml as a whole: a list of processors, or a map that also has sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.fields import Fields
from common.names import name_problem
from common.processors import SINK, SOURCE
from common.yaml_positions import Items, Located, Map, Pair, Problems, Scalar, Value, describe
from streams.pipeline.entries import Entry, read_entries
from streams.pipeline.sources import ON_INVALID, RESETS, UNITS, WALL_CLOCK
from streams.pipeline.stores import SERDES

NEEDS_JSON = "the time is in a field, which only values with the serde json have"
_SOURCE_KEYS = ("topic", "key", "value", "timestamp", "auto_offset_reset")


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of a pipeline.yaml; its processors might not fit together.

    `sources` and `sinks` map the names that the file defines to topics, without those of
    config.yaml; "" replaces a topic that is wrong. `source_options` says how sources are read, as
    JSON values. `places` has the positions of the names in the file.
    """

    root: Value
    entries: Sequence[Entry]
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    source_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    places: Mapping[str, Located] = field(default_factory=dict)

    @property
    def topics(self) -> Mapping[str, str]:
        """The topics of sources and sinks together; their names differ."""
        return {**self.sources, **self.sinks}

    @property
    def is_whole(self) -> bool:
        """Whether no entry was dropped because of a mistake in it."""
        items = self.root.items if isinstance(self.root, Items) else ()
        return 0 < len(self.entries) == len(items)


def read_pipeline(root: Value, problems: Problems) -> PipelineFile:
    """Return the content of the file; each mistake is added to `problems`."""
    if not isinstance(root, Map):
        return PipelineFile(root, read_entries(root, problems))
    fields = Fields(root.pairs, problems, at=root, known=("sources", "sinks", "processors"))
    sources = _topics(fields, "sources", SOURCE, problems)
    sinks = _topics(fields, "sinks", SINK, problems)
    options = {
        pair.key: _source_options(pair.value, problems)
        for pair in fields.pairs("sources")
        if isinstance(pair.value, Map)
    }
    processors = fields.require("processors", "a list of processors (`- id: …`)")
    entries = [] if processors is None else read_entries(processors, problems)
    taken = {entry.id for entry in entries}
    places: dict[str, Located] = {}
    for key, others in (("sources", taken), ("sinks", taken | sources.keys())):
        for pair in fields.pairs(key):
            places.setdefault(pair.key, pair.at)
            if pair.key in others:
                problems.add(
                    pair.at, f'{key}: the name "{pair.key}" is given to something else too'
                )
    whole = processors if processors is not None else root
    return PipelineFile(whole, entries, sources, sinks, options, places)


def _topics(fields: Fields, key: str, reserved: str, problems: Problems) -> dict[str, str]:
    topics = {}
    for pair in fields.pairs(key):
        if pair.key == reserved:
            problems.add(pair.at, f'"{reserved}" is the {reserved}_topic of config.yaml')
        elif wrong := name_problem(pair.key):
            problems.add(pair.at, f'the name of {key[:-1]} "{pair.key}" {wrong}')
        else:
            topics[pair.key] = _topic(pair, may_be_map=key == "sources", problems=problems)
    return topics


def _topic(pair: Pair, *, may_be_map: bool, problems: Problems) -> str:
    value = pair.value
    if may_be_map and isinstance(value, Map):
        found = [inner.value for inner in value.pairs if inner.key == "topic"]
        if not found:
            problems.add(value, 'missing key "topic" (the topic that is read)')
            return ""
        value = found[0]
    if not isinstance(value, Scalar) or not isinstance(value.value, str):
        problems.add(value, f"{pair.key} must be the name of a topic, got {describe(value)}")
        return ""
    wrong = name_problem(value.value)
    if wrong:
        problems.add(value, f'the topic "{value.value}" of "{pair.key}" {wrong}')
        return ""
    return value.value


def _source_options(value: Map, problems: Problems) -> dict[str, Any]:
    fields = Fields(value.pairs, problems, at=value, known=_SOURCE_KEYS)
    options: dict[str, Any] = {
        "auto_offset_reset": fields.choice("auto_offset_reset", RESETS, default="earliest")
    }
    for name in ("key", "value"):
        if fields.get(name) is not None:
            options[name] = fields.choice(name, SERDES, default="bytes")
    given = fields.get("timestamp")
    if isinstance(given, Scalar) and given.value == WALL_CLOCK:
        options["timestamp"] = WALL_CLOCK
    elif given is not None and not isinstance(given, Map):
        problems.add(given, f"timestamp must be {WALL_CLOCK} or a map, got {describe(given)}")
    elif given is not None:
        timestamp = fields.submap("timestamp", known=("field", "unit", "on_invalid"))
        options["timestamp"] = {
            "field": timestamp.text("field", about="the key in the value"),
            "unit": timestamp.choice("unit", UNITS, default="ms"),
            "on_invalid": timestamp.choice("on_invalid", tuple(ON_INVALID), default="fail"),
        }
        if options.get("value", "json") != "json" and not problems.found_at(fields.at("value")):
            problems.add(fields.at("timestamp"), NEEDS_JSON)
    return options

"""pipeline.yaml as a whole: a list of processors, or a map that also has sources and sinks."""

from __future__ import annotations

from kafka_pipeline.common.config.config import PIPELINE_FILE, refuse_other_file
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    SCHEMA_VERSION,
    ConfigKey,
    Free,
    Schema,
    map_schema,
    names,
)
from kafka_pipeline.common.config.yaml_positions import (
    Located,
    Map,
    Pair,
    Problems,
    Scalar,
    Value,
    describe,
)
from kafka_pipeline.common.names import NAME_PATTERN, name_problem
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE
from kafka_pipeline.streams.pipeline.entries import ENTRIES_SCHEMA, read_entries
from kafka_pipeline.streams.pipeline.kinds.entry import PipelineFile
from kafka_pipeline.streams.pipeline.kinds.sources import (
    SOURCE_KEYS,
    SOURCE_RULES,
    TOPIC,
    read_schema,
    read_source,
)
from kafka_pipeline.streams.pipeline.kinds.tables import VIEW
from kafka_pipeline.streams.pipeline.source_schemas import with_source_schemas
from kafka_pipeline.streams.pipeline.stages import with_stages

_TOPIC_SCHEMA = TOPIC.schema()


def _named(reserved: str) -> dict[str, object]:
    return {"pattern": NAME_PATTERN, "not": {"const": reserved}}


SOURCES = Free(
    name="sources",
    doc="topics that the pipeline reads, by names for `from`: a topic, or a map",
    of={
        "type": "object",
        "propertyNames": _named(SOURCE),
        "additionalProperties": {
            "anyOf": [
                _TOPIC_SCHEMA,
                {**map_schema(SOURCE_KEYS), "allOf": [*SOURCE_RULES]},
            ]
        },
    },
    says="map",
)
SINKS = Free(
    name="sinks",
    doc="topics that the pipeline writes, by names for `to`",
    of={
        "type": "object",
        "propertyNames": _named(SINK),
        "additionalProperties": _TOPIC_SCHEMA,
    },
    says="map",
)
VIEWS = Free(
    name="views",
    doc="queries by names, which those of `type: sql` read as tables",
    of={
        "type": "object",
        "propertyNames": {"pattern": NAME_PATTERN, "not": {"enum": [SOURCE, VIEW]}},
        "additionalProperties": {"type": "string", "pattern": r"\S"},
    },
    says="map",
)
PROCESSORS = Free(
    name="processors",
    doc="the processors, in any order",
    about="a list of processors (`- id: …`)",
    required=True,
    of=ENTRIES_SCHEMA,
    says="list of maps",
)
FILE_KEYS: tuple[ConfigKey, ...] = (SOURCES, SINKS, VIEWS, PROCESSORS)


def pipeline_schema() -> Schema:
    """Return the JSON Schema of the file: a list of processors, or a map.

    It compares no part of the file with another one: targets that do not exist are fine with it.
    """
    as_map = map_schema(FILE_KEYS)
    processors = {"$ref": f"#/definitions/{PROCESSORS.name}"}
    return {
        "$schema": SCHEMA_VERSION,
        "title": "pipeline.yaml",
        "definitions": {PROCESSORS.name: ENTRIES_SCHEMA},
        "if": {"type": "array"},
        "then": processors,
        "else": {**as_map, "properties": as_map["properties"] | {PROCESSORS.name: processors}},
    }


def read_pipeline(root: Value, problems: Problems) -> PipelineFile:
    """Return the content of the file; each mistake is added to `problems`.

    Raises ConfigError if the file is a config.yaml.
    """
    refuse_other_file(root, PIPELINE_FILE, problems)
    if not isinstance(root, Map):
        return _completed(PipelineFile(root, read_entries(root, problems)), problems)
    fields = Fields(root.pairs, problems, at=root, known=names(FILE_KEYS))
    sources = _topics(fields, SOURCES, SOURCE, problems)
    sinks = _topics(fields, SINKS, SINK, problems)
    maps = {pair.key: pair.value for pair in fields.pairs(SOURCES) if isinstance(pair.value, Map)}
    specs = {name: read_source(value, problems) for name, value in maps.items()}
    found = {name: read_schema(value) for name, value in maps.items()}
    schemas = {name: schema for name, schema in found.items() if schema}
    processors = fields.require(PROCESSORS)
    views = _views(fields, problems)
    entries = [] if processors is None else read_entries(processors, problems, views, schemas)
    places: dict[str, Located] = {}
    taken = {entry.id: "the id of a processor" for entry in entries}
    for key in (SOURCES, SINKS):
        for pair in fields.pairs(key):
            places.setdefault(pair.key, pair.at)
            _add_if_taken(pair, key.name, taken.get(pair.key), problems)
        taken = dict.fromkeys(sources, "the name of a source") | taken
    names_of_inputs = {name.lower(): what for name, what in taken.items()}
    for pair in fields.pairs(VIEWS):
        _add_if_taken(pair, VIEWS.name, names_of_inputs.get(pair.key.lower()), problems)
    whole = processors if processors is not None else root
    file = PipelineFile(whole, entries, sources, sinks, specs, schemas, places)
    return _completed(file, problems)


def _add_if_taken(pair: Pair, section: str, what: str | None, problems: Problems) -> None:
    if what is not None:
        problems.add(pair.at, f'{section}: "{pair.key}" is {what}, too: choose another name')


def _completed(file: PipelineFile, problems: Problems) -> PipelineFile:
    return with_stages(with_source_schemas(file, problems), problems)


def _views(fields: Fields, problems: Problems) -> dict[str, str]:
    """Return the queries of views by name, in small letters."""
    views = {}
    for pair in fields.pairs(VIEWS):
        query = pair.value.value if isinstance(pair.value, Scalar) else None
        if pair.key.lower() in (SOURCE, VIEW):
            problems.add(pair.at, f'"{pair.key}" is a name that queries have for their inputs')
        elif wrong := name_problem(pair.key):
            problems.add(pair.at, f'the name of view "{pair.key}" {wrong}')
        elif not isinstance(query, str) or not query.strip():
            problems.add(
                pair.value, f"the view {pair.key} must be a SELECT, got {describe(pair.value)}"
            )
        elif pair.key.lower() in views:
            problems.add(pair.at, f'view "{pair.key}" is given twice')
        else:
            views[pair.key.lower()] = query
    return views


def _topics(fields: Fields, key: ConfigKey, reserved: str, problems: Problems) -> dict[str, str]:
    topics = {}
    for pair in fields.pairs(key):
        if pair.key == reserved:
            problems.add(pair.at, f'"{reserved}" is the {reserved}_topic of config.yaml')
        elif wrong := name_problem(pair.key):
            problems.add(pair.at, f'the name of {key.name[:-1]} "{pair.key}" {wrong}')
        else:
            topics[pair.key] = _topic(pair, may_be_map=key is SOURCES, problems=problems)
    return topics


def _topic(pair: Pair, *, may_be_map: bool, problems: Problems) -> str:
    value = pair.value
    if may_be_map and isinstance(value, Map):
        found = [inner.value for inner in value.pairs if inner.key == TOPIC.name]
        if not found:
            problems.add(value, f'missing key "{TOPIC.name}" ({TOPIC.about})')
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

"""The lookup tables of queries in pipeline.yaml: those that Spark reads, and those of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    ConfigKey,
    Duration,
    Flag,
    Free,
    Schema,
    Text,
    map_schema,
    names,
)
from kafka_pipeline.common.config.yaml_positions import Map, Pair, Problems, Scalar, describe
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.lookup_tables import TableSpec, TopicTableSpec
from kafka_pipeline.common.pipelines.processors import SOURCE
from kafka_pipeline.common.pipelines.specs import FieldTime, SourceSpec
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.references import check_value

VIEW = "input"
"""The name of the view of records, which no table can have."""

_TABLE_FORMAT = Text(
    name="format",
    doc="a source of Spark that config.yaml allows, such as `parquet`, `csv` or `jdbc`; a table "
    "has `format` or `topic`",
    about="a source of Spark, such as parquet or csv",
    required=True,
)
_TABLE_PATH = Text(name="path", doc="a file or folder", default="")
_TABLE_SCHEMA = Text(
    name="schema",
    doc="the table's columns, as DDL of Spark; with `topic`, the columns of JSON values",
    default="",
)
_TABLE_OPTIONS = Free(
    name="options",
    doc="options of Spark's source; `user`, `url` and secrets may be `${NAME}` or `${file:PATH}`",
    of={
        "type": "object",
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    says="map",
)
_REFRESH = Duration(
    name="refresh_interval",
    doc="how often the table is read again, such as `10 min`; without it, the table is read only "
    "once",
    low=1,
    units=("s", "sec", "min", "h", "d"),
)
_TABLE_KEYS: tuple[ConfigKey, ...] = (
    _TABLE_FORMAT,
    _TABLE_PATH,
    _TABLE_SCHEMA,
    _TABLE_OPTIONS,
    _REFRESH,
)
_TOPIC = Text(
    name="topic",
    doc="in place of `format`: a name of `sources:`; the table holds the last record of each key",
    about="a name of sources",
    required=True,
)
_GLOBAL = Flag(
    name="global",
    doc="with `topic`: all tasks have the whole table, so it can be joined by any column",
    default=False,
)
_HISTORY = Duration(
    name="history",
    doc="with `topic`: how long former records of each key are kept, such as `10 min`; a record "
    "then sees the row of its own time, even if it comes late",
    low=1,
)
_TOPIC_KEYS: tuple[ConfigKey, ...] = (_TOPIC, _TABLE_SCHEMA, _GLOBAL, _HISTORY)
_TOPIC_RULE: Schema = {
    "if": {"properties": {_GLOBAL.name: {"const": True}}, "required": [_GLOBAL.name]},
    "then": {"properties": {_HISTORY.name: False}},
}
TABLES = Free(
    name="tables",
    doc="lookup tables, by the names that the query uses",
    of={
        "type": "object",
        "propertyNames": {
            "not": {"pattern": "^[Ii][Nn][Pp][Uu][Tt]$"},
            "pattern": r"^[^0-9\s.-][^\s.-]*$",
        },
        "additionalProperties": {
            "if": {"required": [_TOPIC.name]},
            "then": {**map_schema(_TOPIC_KEYS), "allOf": [_TOPIC_RULE]},
            "else": map_schema(_TABLE_KEYS),
        },
    },
    says="map",
    parts=tuple(
        replace(key, name=f"<name>.{key.name}", required=False)
        for key in (*_TABLE_KEYS, _TOPIC, _GLOBAL, _HISTORY)
    ),
)


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The lookup tables of a query: those that Spark reads, and those that follow topics."""

    by_spark: Mapping[str, TableSpec] = field(default_factory=dict)
    of_topics: Mapping[str, TopicTableSpec] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    """The names of all tables, also of those that are wrong."""


def read_tables(fields: Fields, problems: Problems) -> TablesRead:
    """Return the lookup tables; each mistake goes to `problems`."""
    by_spark: dict[str, TableSpec] = {}
    of_topics: dict[str, TopicTableSpec] = {}
    pairs = fields.pairs(TABLES)
    folded = dict[str, str]()
    for pair in pairs:
        first = folded.setdefault(pair.key.lower(), pair.key)
        if first != pair.key:
            problems.add(pair.at, f'"{pair.key}" and "{first}" are one table to Spark: rename one')
        if not pair.key.isidentifier() or pair.key.lower() == VIEW:
            problems.add(pair.at, f'"{pair.key}" cannot be the name of a table')
        if not isinstance(pair.value, Map):
            problems.add(
                pair.value,
                f"a table must be a map with format or topic, got {describe(pair.value)}",
            )
        elif any(inner.key == _TOPIC.name for inner in pair.value.pairs):
            found = _topic_table(pair, pair.value, of_topics, problems)
            wrong = name_problem(found.store_of(pair.key))
            if wrong is None:
                of_topics[pair.key] = found
            elif not problems.found_at(pair.at):
                problems.add(
                    pair.at, f'"{pair.key}" is part of the name of a state topic, which {wrong}'
                )
        else:
            by_spark[pair.key] = _table(pair.value, problems)
    return TablesRead(by_spark, of_topics, tuple(pair.key for pair in pairs))


def check_topic(
    name: str, table: TopicTableSpec, entry: Entry, file: PipelineFile, problems: Problems
) -> None:
    """Report a topic of a table that is not a source, or that the processor reads anyway."""
    where = f'"{entry.id}": table "{name}"'
    choices = (SOURCE, *file.sources)
    if not table.topic:
        return  # reported already
    if table.topic not in choices:
        hint = did_you_mean(table.topic, choices)
        problems.add(entry.at, f'{where}: topic names none of sources, got "{table.topic}"{hint}')
    elif table.topic in file.inputs(entry):
        problems.add(
            entry.at,
            f'{where} follows "{table.topic}", which the processor reads as input too: a topic is '
            "one or the other. Name another source in from, or in topic",
        )
    time = file.source_specs.get(table.topic, SourceSpec()).timestamp
    if time is not None and table.is_global:
        problems.add(
            entry.at,
            f"{where} is global, so a record sees the rows that were read so far, whatever their "
            f'time: source "{table.topic}" must not say timestamp',
        )
    elif isinstance(time, FieldTime) and time.on_invalid != "partition_time":
        problems.add(
            entry.at,
            f"{where}: a null value deletes a row, and has no field with a time: let source "
            f'"{table.topic}" say on_invalid: partition_time',
        )


def _table(value: Map, problems: Problems) -> TableSpec:
    table = Fields(value.pairs, problems, at=value, known=names(_TABLE_KEYS))
    return TableSpec(
        format=table.text(_TABLE_FORMAT),
        path=table.text(_TABLE_PATH),
        schema=table.text(_TABLE_SCHEMA),
        options=_options(table, problems),
        refresh_s=(table.duration(_REFRESH) or 0) // 1000,
    )


def _topic_table(
    pair: Pair, value: Map, others: Mapping[str, TopicTableSpec], problems: Problems
) -> TopicTableSpec:
    table = Fields(value.pairs, problems, at=value, known=names(_TOPIC_KEYS))
    found = TopicTableSpec(
        topic=table.text(_TOPIC),
        schema=table.text(_TABLE_SCHEMA),
        is_global=table.boolean(_GLOBAL),
        history_ms=table.duration(_HISTORY),
    )
    if found.is_global and found.has_history:
        problems.add(
            table.at(_HISTORY.name),
            "history belongs to a table without global: true, which has the rows that were read so "
            "far, whatever the time of a record: leave out one of them",
        )
    for name, other in others.items():
        if found.topic and other.topic == found.topic:
            problems.add(
                table.at(_TOPIC.name),
                f'the tables "{name}" and "{pair.key}" follow the same topic: use one of them, '
                "under two aliases if need be",
            )
    return found


def _options(table: Fields, problems: Problems) -> dict[str, str]:
    options = {}
    for pair in table.pairs(_TABLE_OPTIONS):
        if not isinstance(pair.value, Scalar) or pair.value.value is None:
            problems.add(pair.value, f"option {pair.key} must be one value")
            continue
        check_value(pair.key, pair.value, problems)
        value = pair.value.value
        # As written: 1.10 is no number for whom it is a version, or a value that means null.
        written = value if isinstance(value, str) else pair.value.text
        options[pair.key] = str(value).lower() if isinstance(value, bool) else written
    return options

"""The sources of pipeline.yaml: how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Choice, Flag, Free, Schema, Section, Text
from kafka_pipeline.common.config.yaml_positions import Map, Problems, Scalar, describe, plain
from kafka_pipeline.common.names import NAME_PATTERN
from kafka_pipeline.common.pipelines.specs import (
    WALL_CLOCK,
    FieldTime,
    OffsetReset,
    OnInvalid,
    SourceFormat,
    SourceSpec,
    TimeUnit,
)
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.errors import InvalidArgumentError
from kafka_pipeline.streams.pipeline.kinds.history import HISTORY, HISTORY_RULE, read_history
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import SerdeKey, has_fields, read_serde
from kafka_pipeline.streams.timestamps import (
    FailOnInvalidTimestamp,
    FieldTimestampExtractor,
    LogAndSkipOnInvalidTimestamp,
    RecordTimestampExtractor,
    RecordView,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
    record_timestamp,
)

NEEDS_JSON = "the time is in a field, which only values with the serde json have"
_ON_INVALID: Mapping[OnInvalid, RecordTimestampExtractor] = {
    "fail": FailOnInvalidTimestamp(),
    "skip": LogAndSkipOnInvalidTimestamp(),
    "partition_time": UsePartitionTimeOnInvalidTimestamp(),
}
TOPIC = Text(
    name="topic",
    doc="the topic",
    about="the topic that is read",
    required=True,
    pattern=NAME_PATTERN,
)
_FIELD = Text(
    name="field",
    doc="the key in the value, such as `time`, or `meta.time` for a key of a map in it",
    about="the key in the value",
    required=True,
)
_UNIT: Choice[TimeUnit] = Choice(
    name="unit", doc="the unit of the field", choices=get_args(TimeUnit), default="ms"
)
_FORMAT = Text(
    name="format",
    doc="in place of `unit`: how times are written, such as `yyyy-MM-dd HH:mm:ss`",
    about='how times are written, such as "yyyy-MM-dd HH:mm:ss"',
    default="",
)
_ZONE = Text(
    name="zone",
    doc="with `format`: the time zone of times without an offset, such as `Europe/Berlin`",
    about='a time zone, such as "Europe/Berlin"',
    default="UTC",
)
_INVALID: Choice[OnInvalid] = Choice(
    name="on_invalid",
    doc="for a value without a valid time: the record is rejected, it is dropped, or it gets the "
    "time of the partition",
    choices=get_args(OnInvalid),
    default="fail",
)
_TIME = Section(name="timestamp", doc="", keys=(_FIELD, _UNIT, _FORMAT, _ZONE, _INVALID))
TIMESTAMP = Free(
    name="timestamp",
    doc=f"the time of a record: `{WALL_CLOCK}`, when it is read, or a field of its value; default: "
    "the record's timestamp",
    of={"anyOf": [{"const": WALL_CLOCK}, _TIME.schema()]},
    says=f"`{WALL_CLOCK}` or map",
    parts=_TIME.keys,
)
_KEY = SerdeKey(name="key", doc="how keys are written; default: as the processor says")
_VALUE = SerdeKey(name="value", doc="how values are written; default: as the processor says")
_RESET: Choice[OffsetReset] = Choice(
    name="auto_offset_reset",
    doc="where a task begins that has not committed yet",
    choices=get_args(OffsetReset),
    default="earliest",
)
_FEEDBACK = Flag(
    name="feedback",
    doc="whether the job also writes the topic, so that results come back through it",
    default=False,
)
_CHANGELOG = Flag(
    name="changelog",
    doc="whether each record replaces the former one with its key, and a null value deletes it, as "
    "in the topic of a table: a query with `GROUP BY` then aggregates the newest records",
    default=False,
)
_EVENTS: Choice[SourceFormat] = Choice(
    name="format",
    doc="`debezium` for a topic of change events of Debezium: queries of `type: sql` get the rows "
    "of the database's table, as from a source with `changelog: true`",
    choices=get_args(SourceFormat),
    default=None,
)
_SCHEMA = Text(
    name="schema",
    doc="the columns of JSON values, as in `name STRING, price DOUBLE`, for queries with `format: "
    "json` that do not give a `schema`",
    about='the columns of the values, such as "name STRING, price DOUBLE"',
    default="",
)
SOURCE_KEYS = (
    *(TOPIC, _KEY, _VALUE, _SCHEMA, TIMESTAMP, _RESET, _FEEDBACK, _CHANGELOG, _EVENTS),
    HISTORY,
)
_DELETIONS: Schema = {
    "if": {
        "properties": {TIMESTAMP.name: {"type": "object"}},
        "required": [TIMESTAMP.name],
        "anyOf": [
            {"properties": {_CHANGELOG.name: {"const": True}}, "required": [_CHANGELOG.name]},
            {"required": [_EVENTS.name]},
        ],
    },
    "then": {
        "properties": {
            TIMESTAMP.name: {
                "properties": {"on_invalid": {"const": "partition_time"}},
                "required": ["on_invalid"],
            }
        }
    },
}
_COLUMNS: Schema = {
    "if": {"required": [_SCHEMA.name, _VALUE.name], "not": {"required": [_EVENTS.name]}},
    "then": {"properties": {_VALUE.name: {"const": "json"}}},
}
_PAST: Schema = {
    "if": {"required": [HISTORY.name]},
    "then": {
        "properties": {
            _VALUE.name: {"const": "json"},
            _RESET.name: {"const": "earliest"},
            _FEEDBACK.name: {"const": False},
            _CHANGELOG.name: {"const": False},
            _EVENTS.name: False,
        }
    },
}
SOURCE_RULES = (_DELETIONS, _COLUMNS, _PAST, HISTORY_RULE)
"""Deletions of a table have no field with a time. A schema is that of JSON. So are the records of a
table, which is read from its first row and has neither deletions nor feedback."""


def read_source(value: Map, problems: Problems) -> SourceSpec:
    """Return how a source is read; each mistake goes to `problems`, but for those in the topic."""
    fields = Fields(value.pairs, problems, at=value, known=[key.name for key in SOURCE_KEYS])
    given = fields.get(TIMESTAMP.name)
    spec = SourceSpec(
        key=read_serde(fields, _KEY, problems),
        value=read_serde(fields, _VALUE, problems),
        timestamp=_read_time(fields, problems),
        auto_offset_reset=fields.choice(_RESET),
        feedback=fields.boolean(_FEEDBACK),
        changelog=fields.boolean(_CHANGELOG),
        format=None if fields.get(_EVENTS.name) is None else fields.choice(_EVENTS),
        history=read_history(fields, problems),
    )
    fields.text(_SCHEMA)
    is_wrong = isinstance(given, Map) and spec.value is not None and not has_fields(spec.value)
    if is_wrong and not problems.found_at(fields.at(_VALUE.name)):
        problems.add(fields.at(TIMESTAMP.name), NEEDS_JSON)
    is_json = spec.value in (None, "json") or spec.format is not None
    if fields.get(_SCHEMA.name) is not None and not is_json:
        problems.add(
            fields.at(_SCHEMA.name),
            "schema has the columns of JSON: say value: json, or leave it out",
        )
    if spec.history is not None and (wrong := _history_problem(spec)):
        problems.add(fields.at(HISTORY.name), f"{HISTORY.name}: {wrong}")
    time = spec.timestamp
    if spec.is_table and isinstance(time, FieldTime) and time.on_invalid != "partition_time":
        problems.add(
            fields.at(TIMESTAMP.name),
            f"with {spec.format or _CHANGELOG.name}, a null value deletes a key, and has no field "
            "with a time: say on_invalid: partition_time",
        )
    return spec


def _history_problem(spec: SourceSpec) -> str:
    """Return why a source cannot have a history; "" if it can."""
    if spec.value not in (None, "json"):
        return "the rows of a table become JSON: say value: json, or leave it out"
    if spec.auto_offset_reset == "latest":
        return "auto_offset_reset: latest would leave it out: remove one of the two"
    if spec.feedback:
        return "records that come back are not in a table that is written from the topic"
    if spec.is_table:
        return (
            f"with {spec.format or _CHANGELOG.name}, a null value deletes a key, and a table has "
            "no rows for these"
        )
    return ""


def read_schema(value: Map) -> str:
    """Return the columns of a source's values as DDL, "" if it does not say them, or wrongly."""
    given = [plain(pair.value) for pair in value.pairs if pair.key == _SCHEMA.name]
    return next((each for each in given if isinstance(each, str) and each.strip()), "")


class JsonFieldTimestampExtractor(FieldTimestampExtractor):
    """Takes the time from a field of values that the processor gets as the bytes of JSON."""

    __slots__ = ()

    def value_of(self, record: RecordView) -> Any:
        """Return the value as it is read from JSON. Raises `SerializationError`."""
        value = record.value
        return None if value is None else serdes.json.deserialize(value)


def extractor_of(source: SourceSpec, *, from_bytes: bool) -> TimestampExtractor:
    """Return the extractor of the time of a source's records.

    `from_bytes` says that the processor gets values as bytes.
    """
    time = source.timestamp
    if time is None:
        return record_timestamp
    if isinstance(time, FieldTime):
        make = JsonFieldTimestampExtractor if from_bytes else FieldTimestampExtractor
        on_invalid = _ON_INVALID[time.on_invalid]
        return make(time.field, time.unit, on_invalid, format=time.format, zone=time.zone)
    return WallclockTimestampExtractor()


def _read_time(fields: Fields, problems: Problems) -> Literal["wall_clock"] | FieldTime | None:
    given = fields.get(TIMESTAMP.name)
    if given is None:
        return None
    if isinstance(given, Scalar) and given.value == WALL_CLOCK:
        return WALL_CLOCK
    if not isinstance(given, Map):
        problems.add(given, f"timestamp must be {WALL_CLOCK} or a map, got {describe(given)}")
        return None
    time = fields.submap(_TIME)
    found = FieldTime(
        field=time.text(_FIELD),
        unit=time.choice(_UNIT),
        on_invalid=time.choice(_INVALID),
        format=time.text(_FORMAT),
        zone=time.text(_ZONE),
    )
    try:
        extractor_of(SourceSpec(timestamp=found), from_bytes=False)
    except InvalidArgumentError as error:
        problems.add(given, f"timestamp: {error}")
    return found

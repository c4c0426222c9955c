"""Serdes as pipeline.yaml gives them: names of the engine's own, and serdes with schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import structs

from kafka_pipeline.common.code.user_code import CODE_PATTERN, UserCode, form_problem
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    Choice,
    ConfigKey,
    Flag,
    Number,
    Schema,
    Section,
    Text,
)
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.config.yaml_positions import Map, Pair, Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.serde_specs import (
    AnySerde,
    EventPart,
    SchemaKind,
    SchemaSerde,
)
from kafka_pipeline.streams import schema_registry, serdes
from kafka_pipeline.streams.serdes import Serde

_KINDS: tuple[SchemaKind, ...] = get_args(SchemaKind)
_LARGEST = 1_000_000
"""The most bytes of a schema: it is part of the record with the pipeline."""

_SUBJECT = Text(
    name="subject",
    doc="the subject in the registry; default: `<topic>-key` or `<topic>-value`",
    default="",
)
_SCHEMA = Text(
    name="schema",
    doc="file with the schema, relative to the folder of pipeline.yaml",
    default="",
)
_VERSION = Number(
    name="version",
    doc="in place of `schema`: the version of the subject; default: the latest one writes",
    low=1,
)
_REGISTER = Flag(name="register", doc="whether the schema is registered", default=False)
_MESSAGE = Text(
    name="message",
    doc="the class of the messages, as `package.module:Class`",
    about="the class of the messages",
    required=True,
    pattern=CODE_PATTERN,
)
_PARTS: Mapping[SchemaKind, Section] = {
    "avro": Section(name="avro", doc="", keys=(_SUBJECT, _SCHEMA, _VERSION, _REGISTER)),
    "json_schema": Section(name="json_schema", doc="", keys=(_SUBJECT, _SCHEMA, _REGISTER)),
    "protobuf": Section(name="protobuf", doc="", keys=(_SUBJECT, _MESSAGE, _REGISTER)),
}
_ALONE: tuple[SchemaKind, ...] = ("avro", "json_schema")
"""Those that need no more than their name."""
_FORMS = ", or a map such as {avro: {subject: …}}"
_EVENTS: tuple[EventPart, ...] = ("debezium", "debezium_changes", "debezium_key")
"""The serdes of change events, which may be in Avro."""
_AVRO: Choice[str] = Choice(
    name="", doc="how change events are written", choices=("avro",), required=True
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SerdeKey(ConfigKey):
    """A key whose value is a serde: a name, or a map of one pair for one with schemas."""

    default: str | None = None

    @property
    def choice(self) -> Choice[str]:
        """The values that are a name."""
        return Choice(
            name=self.name, doc=self.doc, choices=(*serdes.NAMES, *_ALONE), default=self.default
        )

    def schema(self) -> Schema:
        of_kinds = [
            {
                "type": "object",
                "properties": {kind: part.schema()},
                "required": [kind],
                "additionalProperties": False,
            }
            for kind, part in _PARTS.items()
        ]
        of_events = {
            "type": "object",
            "properties": {name: _AVRO.schema() for name in _EVENTS},
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        }
        return {"anyOf": [self.choice.schema(), *of_kinds, of_events]}

    @property
    def kind(self) -> str:
        return "serde"

    @property
    def default_text(self) -> str:
        return self.default or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSerdeKey(SerdeKey):
    """A key that says how the rows of a query are written."""

    @property
    def choice(self) -> Choice[str]:
        return Choice(name=self.name, doc=self.doc, choices=("json", "avro"), default=self.default)

    def schema(self) -> Schema:
        of_avro = {
            "type": "object",
            "properties": {"avro": _PARTS["avro"].schema()},
            "required": ["avro"],
            "additionalProperties": False,
        }
        return {"anyOf": [self.choice.schema(), of_avro]}


def in_shadow(
    serde: AnySerde, topic: str, part: Literal["key", "value"], job_topics: Mapping[str, str]
) -> tuple[AnySerde, str]:
    """Return the serde of a topic, and its subject by default; see `ProcessorSpec.job_topics`.

    The shadow of a job writes by the job's schemas. A schema that it registers gets a subject of
    its own: others write by the latest one of the job's.
    """
    own = f"{topic}-{part}"
    if isinstance(serde, str) or not job_topics:
        return serde, own
    if serde.register and (serde.schema or serde.kind == "protobuf"):
        subject = serde.subject and f"rehearsal-of-{serde.subject}"
        return structs.replace(serde, subject=subject), own
    return serde, f"{job_topics.get(topic, topic)}-{part}"


def has_fields(serde: AnySerde) -> bool:
    """Whether the values of a serde are dicts, or may be."""
    name = (serde.events or serde.kind) if isinstance(serde, SchemaSerde) else serde
    return name in (*serdes.JSON_NAMES, *_ALONE)


def read_serde(fields: Fields, key: SerdeKey, problems: Problems) -> AnySerde | None:
    """Return the serde in a key, `None` if the key is missing; mistakes go to `problems`."""
    given = fields.get(key.name)
    match given:
        case None:
            return None
        case Map(pairs=(Pair(key=name),)):
            for events in () if isinstance(key, RowSerdeKey) else _EVENTS:
                if name == events:
                    Fields(given.pairs, problems, at=given, known=_EVENTS).choice(
                        replace(_AVRO, name=name)
                    )
                    return SchemaSerde(kind="avro", events=events)
            for kind in ("avro",) if isinstance(key, RowSerdeKey) else _KINDS:
                if name == kind:
                    of_kind = Fields(given.pairs, problems, at=given, known=_KINDS)
                    return _with_schemas(of_kind, kind, problems)
    word = fields.choice(key.choice, or_=_FORMS)
    for kind in _ALONE:
        if word == kind:
            return SchemaSerde(kind=kind)
    return word


def _with_schemas(fields: Fields, kind: SchemaKind, problems: Problems) -> SchemaSerde:
    part = fields.submap(_PARTS[kind])
    message = part.text(_MESSAGE) if kind == "protobuf" else ""
    if message and (wrong := form_problem(message)):
        problems.add(part.at(_MESSAGE.name), wrong)
    version = part.number_or_none(_VERSION) if kind == "avro" else None
    if version is not None and part.get(_SCHEMA.name) is not None:
        problems.add(part.at(_VERSION.name), "version takes the place of schema: leave out one")
    return SchemaSerde(
        kind=kind,
        subject=part.text(_SUBJECT),
        schema="" if kind == "protobuf" or version else _read_schema(part, problems),
        version=version or 0,
        message=message,
        register=part.boolean(_REGISTER),
    )


def _read_schema(part: Fields, problems: Problems) -> str:
    """Return the text of the file with the schema, or "" without one."""
    name = part.text(_SCHEMA)
    try:
        return _text_of(problems.folder / Path(name).expanduser()) if name else ""
    except (OSError, ValueError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        problems.add(part.at(_SCHEMA.name), f"schema: {name} cannot be read: {why}")
        return ""


def _text_of(file: Path) -> str:
    with file.open("rb") as opened:
        data = opened.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST} bytes")
    return data.decode()


def columns_of_rows(
    settings: RegistrySettings | None, subject: str, serde: SchemaSerde, *, is_events: bool
) -> tuple[int, str]:
    """Return the version of the schema by which a query reads a topic, and its columns as DDL.

    With `is_events`, these are the columns of the rows in change events. Raises as `row_schema`.
    """
    of = None if settings is None else schema_registry.SchemaRegistry.of(settings, register=False)
    return schema_registry.row_schema(of, subject, serde.schema, serde.version, is_events=is_events)


Rows = Literal["", "key", "value"]
_OF_EVENTS: Mapping[str, Callable[[schema_registry.SchemaRegistry, str], Serde[Any]]] = {
    "debezium": schema_registry.debezium,
    "debezium_changes": schema_registry.debezium_changes,
    "debezium_key": schema_registry.debezium_key,
}


def serde_of(
    serde: AnySerde,
    subject: str,
    *,
    registry: RegistrySettings | None,
    code: UserCode,
    as_json: bool = False,
    rows: Rows = "",
) -> Serde[Any]:
    """Return the serde of a topic's keys or values, whose subject by default is `subject`.

    With `as_json`, what has a schema is read and written as JSON, see `schema_registry`. Avro is
    read and written as the `rows` of queries, or as their keys, if so said.
    Asks the registry for nothing. Raises ConfigError without a registry or the packages for
    schemas, and for a schema or class that is wrong.
    """
    if isinstance(serde, str):
        return serdes.by_name(serde)
    if registry is None:
        raise ConfigError(
            f"the serde {serde.kind} needs a schema registry: give its address in config.yaml, "
            "under schema_registry: {url: …}"
        )
    of = schema_registry.SchemaRegistry.of(registry, register=serde.register)
    name = serde.subject or subject
    match serde.kind:
        case "avro" if serde.events:
            return _OF_EVENTS[serde.events](of, name)
        case "avro" if rows:
            is_key = rows == "key"
            return schema_registry.avro_rows(
                of, name, serde.schema or None, serde.version, is_key=is_key
            )
        case "protobuf":
            return schema_registry.protobuf(of, name, code.load(serde.message), as_json=as_json)
        case "json_schema":
            return schema_registry.json_schema(of, name, serde.schema or None, as_json=as_json)
        case "avro":
            return schema_registry.avro(
                of, name, serde.schema or None, serde.version, as_json=as_json
            )

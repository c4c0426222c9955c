"""Serdes as pipeline.yaml gives them: names of the engine's own, and serdes with schemas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from kafka_pipeline.common.code.user_code import CODE_PATTERN, UserCode, form_problem
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Choice, ConfigKey, Flag, Schema, Section, Text
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.config.yaml_positions import Map, Pair, Problems
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.specs import AnySerde, SchemaKind, SchemaSerde
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
_REGISTER = Flag(name="register", doc="whether the schema is registered", default=False)
_MESSAGE = Text(
    name="message",
    doc="the class of the messages, as `package.module:Class`",
    about="the class of the messages",
    required=True,
    pattern=CODE_PATTERN,
)
_PARTS: Mapping[SchemaKind, Section] = {
    "avro": Section(name="avro", doc="", keys=(_SUBJECT, _SCHEMA, _REGISTER)),
    "json_schema": Section(name="json_schema", doc="", keys=(_SUBJECT, _SCHEMA, _REGISTER)),
    "protobuf": Section(name="protobuf", doc="", keys=(_SUBJECT, _MESSAGE, _REGISTER)),
}
_ALONE: tuple[SchemaKind, ...] = ("avro", "json_schema")
"""Those that need no more than their name."""
_FORMS = ", or a map such as {avro: {subject: …}}"


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
        """See `ConfigKey`."""
        of_kinds = [
            {
                "type": "object",
                "properties": {kind: part.schema()},
                "required": [kind],
                "additionalProperties": False,
            }
            for kind, part in _PARTS.items()
        ]
        return {"anyOf": [self.choice.schema(), *of_kinds]}

    @property
    def kind(self) -> str:
        """See `ConfigKey`."""
        return "serde"

    @property
    def default_text(self) -> str:
        """See `ConfigKey`."""
        return self.default or ""


def has_fields(serde: AnySerde) -> bool:
    """Whether the values of a serde are dicts, or may be."""
    name = serde.kind if isinstance(serde, SchemaSerde) else serde
    return name in (*serdes.JSON_NAMES, *_ALONE)


def read_serde(fields: Fields, key: SerdeKey, problems: Problems) -> AnySerde | None:
    """Return the serde in a key, `None` if the key is missing; mistakes go to `problems`."""
    given = fields.get(key.name)
    match given:
        case None:
            return None
        case Map(pairs=(Pair(key=name),)):
            for kind in _KINDS:
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
    return SchemaSerde(
        kind=kind,
        subject=part.text(_SUBJECT),
        schema="" if kind == "protobuf" else _read_schema(part, problems),
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


def serde_of(
    serde: AnySerde,
    subject: str,
    *,
    registry: RegistrySettings | None,
    code: UserCode,
    as_json: bool = False,
) -> Serde[Any]:
    """Return the serde of a topic's keys or values, whose subject by default is `subject`.

    With `as_json`, what has a schema is read and written as JSON, see `schema_registry`.
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
        case "protobuf":
            return schema_registry.protobuf(of, name, code.load(serde.message), as_json=as_json)
        case "json_schema":
            return schema_registry.json_schema(of, name, serde.schema or None, as_json=as_json)
        case "avro":
            return schema_registry.avro(of, name, serde.schema or None, as_json=as_json)

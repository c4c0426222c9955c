"""Serdes as an option of a command names them."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.code.user_code import UserCode, form_problem
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.serde_specs import AnySerde, SchemaSerde
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import serde_of
from kafka_pipeline.streams.serdes import Serde


def command_serde(given: str, subject: str, config: Config) -> Serde[Any]:
    """Return the serde that an option names; what has a schema is read and written as JSON.

    `avro` and `json_schema` may be followed by a colon and a subject, which is `subject` by
    default; `protobuf` by a colon and the class, as `protobuf:MODULE:CLASS`. Nothing is registered.
    Raises ConfigError as `serde_of` does, and for any other name.
    """
    serde = _parsed(given)
    if isinstance(serde, str) and serde not in serdes.NAMES:
        raise ConfigError(
            f'there is no serde "{given}": use {", ".join(serdes.NAMES)}, or, with a schema '
            "registry, avro, json_schema, or protobuf:MODULE:CLASS"
        )
    code = UserCode.of(config)
    return serde_of(serde, subject, registry=config.schema_registry, code=code, as_json=True)


def _parsed(given: str) -> AnySerde:
    kind, colon, rest = given.partition(":")
    match kind:
        case "avro" | "json_schema" if rest or not colon:
            return SchemaSerde(kind=kind, subject=rest)
        case "protobuf":
            if wrong := form_problem(rest):
                raise ConfigError(f"{given}: give the class, as protobuf:MODULE:CLASS: {wrong}")
            return SchemaSerde(kind=kind, message=rest)
    return given

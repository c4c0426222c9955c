"""Serdes of a suite's topics: those of the engine, and those with schemas, in a registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.serde_specs import AnySerde, SchemaSerde
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import SerdeKey, read_serde, serde_of
from kafka_pipeline.streams.schema_registry import SchemaRegistry, register_in_memory
from kafka_pipeline.streams.serdes import Serde

Given = tuple[AnySerde | None, AnySerde | None]
"""The serdes of keys and of values, as a suite gives them."""

Made = tuple[Serde[Any] | None, Serde[Any] | None]


def read_serdes(fields: Fields, problems: Problems) -> Given:
    """Return what the keys `key` and `value` say; mistakes go to `problems`."""
    key, value = (
        read_serde(fields, SerdeKey(name=name, doc="how bytes are written"), problems)
        for name in ("key", "value")
    )
    return key, value


def made(given: Mapping[str, Given], config: Config) -> dict[str, Made]:
    """Return the serdes by topic.

    A registry in memory gets the schemas, as somebody has registered them in production. Raises
    ConfigError as `serde_of` does.
    """
    code = UserCode.of(config)

    def serde(found: AnySerde | None, subject: str) -> Serde[Any] | None:
        if found is None:
            return None
        is_json = isinstance(found, SchemaSerde) and found.kind == "json_schema"
        serde = serde_of(
            found, subject, registry=config.schema_registry, code=code, as_json=not is_json
        )
        if isinstance(found, SchemaSerde) and found.schema and config.schema_registry is not None:
            registry = SchemaRegistry.of(config.schema_registry, register=False)
            register_in_memory(registry, found.subject or subject, found.kind, found.schema)
        return serde

    return {
        topic: (serde(key, f"{topic}-key"), serde(value, f"{topic}-value"))
        for topic, (key, value) in given.items()
    }

"""Shows keys and values that are written in Avro, as far as the schema registry lets it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.operations.dead_letters import DeadLetter
from kafka_pipeline.operations.record_lines import RecordLines
from kafka_pipeline.streams import schema_registry, serdes
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.pipeline.topic_serdes import avro_parts
from kafka_pipeline.streams.schema_registry import SchemaRegistry
from kafka_pipeline.streams.serdes import Serde

logger = structlog.get_logger()

_MAGIC = b"\0"


def letter_with_text(config: Config, pipeline: Pipeline, letter: DeadLetter) -> DeadLetter:
    """Return a letter whose key and value are JSON where a pipeline has Avro."""
    avro = _AvroText(config.schema_registry)
    parts = avro_parts(pipeline, letter.came_from[0]) if letter.came_from else ()
    return replace(
        letter,
        key=avro.of(letter.key) if "key" in parts else letter.key,
        value=avro.of(letter.value) if "value" in parts else letter.value,
    )


def lines_with_text(config: Config, pipeline: Pipeline, lines: RecordLines) -> RecordLines:
    """Return lines that show JSON in place of a `string` where a pipeline has Avro."""
    read = _AvroText(config.schema_registry).text_of
    text: Serde[Any] = Serde("avro", serdes.bytes.serialize, read)
    parts = avro_parts(pipeline, lines.topic)
    return replace(
        lines,
        key=text if "key" in parts and lines.key is serdes.string else lines.key,
        value=text if "value" in parts and lines.value is serdes.string else lines.value,
    )


class _AvroText:
    """Reads Avro as the JSON that queries see: decimals are numbers, and times text.

    A registry that does not answer, or refuses, is asked once. For one request of a user.
    """

    def __init__(self, settings: RegistrySettings | None) -> None:
        self._read = None if settings is None else _reader(settings)

    def of(self, data: bytes | None) -> bytes | None:
        """Return JSON or text; what is not Avro, or cannot be read now, as it is."""
        if self._read is None or data is None or data[:1] != _MAGIC:
            return data
        try:
            return self._read.deserialize(data)
        except SerializationError:
            return data
        except (ConfigError, UnavailableError) as error:
            logger.warning("records are shown as they are", reason=str(error))
            self._read = None
            return data

    def text_of(self, data: bytes) -> str | bytes:
        """Return JSON or text, or bytes that are neither."""
        found = self.of(data)
        try:
            return data if found is None or found[:1] == _MAGIC else found.decode()
        except UnicodeDecodeError:
            return data


def _reader(settings: RegistrySettings) -> Serde[bytes] | None:
    registry = SchemaRegistry.of(settings, register=False)
    at_once = SchemaRegistry(registry.url, {**registry.settings, "max.retries": 0}, register=False)
    try:
        # Each record names its schema. A key may be of any type, and so may a value here.
        return schema_registry.avro_rows(at_once, "any subject", is_key=True)
    except ConfigError as error:
        logger.warning("records are shown as they are", reason=str(error))
        return None

"""The JSON Schemas of the two files, for editors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum

from kafka_pipeline.common.config.config_keys import config_schema
from kafka_pipeline.common.config.keys import Schema
from kafka_pipeline.streams.pipeline.file import pipeline_schema


class SchemaName(StrEnum):
    """A file that has a schema."""

    CONFIG = "config"
    PIPELINE = "pipeline"


_MADE_BY: Mapping[SchemaName, Callable[[], Schema]] = {
    SchemaName.CONFIG: config_schema,
    SchemaName.PIPELINE: pipeline_schema,
}


def schema_text(name: SchemaName) -> str:
    """Return the schema as indented JSON that ends with a line break."""
    return json.dumps(_MADE_BY[name](), indent=2, ensure_ascii=False) + "\n"


def schema_file(name: SchemaName) -> str:
    """Return the path that the samples name, relative to their folder."""
    return f"schemas/{name}.schema.json"

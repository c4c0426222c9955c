"""The Avro schema of the results that a query writes to a topic."""

from __future__ import annotations

import json
from typing import Any

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.schema_registry import (
    SchemaRegistry,
    avro_of_columns,
    register_first,
)
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import SparkSpec
from kafka_pipeline.common.spark_types import columns_of_result
from kafka_pipeline.streams.pipeline.spark_answers import local_queries, result_of


class ResultSchema:
    """The `schema` of a topic, as JSON values, and the `subject` where it belongs."""

    def __init__(self, config: Config, pipeline: Pipeline, topic: str) -> None:
        """Ask a Spark of this process, which starts in some seconds.

        Raises `ConfigError` if not just one query writes the topic, or for columns that Avro does
        not have, `QueryError` for a query that Spark cannot run, and `UnavailableError` without
        Java.
        """
        writers = [
            (each.id, each.spec)
            for each in pipeline.processors
            if isinstance(each.spec, SparkSpec) and topic in pipeline.out_topics(each)
        ]
        if len(writers) != 1:
            ids = ", ".join(id_ for id_, _ in writers)
            written = f"the queries {ids} write it" if ids else "no query writes it"
            raise ConfigError(f'topic "{topic}": {written}, and a schema is that of one')
        ((id_, spec),) = writers
        serde = spec.out_value
        given = serde.subject if isinstance(serde, SchemaSerde) else ""
        columns = columns_of_result(result_of(local_queries(config), spec))
        self.subject = given or f"{topic}-value"
        self.schema: Any = avro_of_columns(id_, columns)
        self._config = config

    def register(self) -> int:
        """Register the schema as the first one of its subject; return its id.

        Raises `ConfigError` and `UnavailableError` as `register_first` does.
        """
        settings = self._config.schema_registry
        if settings is None:
            raise ConfigError(
                "there is no registry: give its address in config.yaml, under schema_registry: "
                "{url: …}"
            )
        registry = SchemaRegistry.of(settings, register=True)
        return register_first(registry, self.subject, json.dumps(self.schema))

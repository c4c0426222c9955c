"""Which topics of a pipeline are written in Avro."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.serde_specs import AnySerde, SchemaSerde
from kafka_pipeline.common.pipelines.specs import ClassSpec, SourceSpec, SparkSpec

Part = Literal["key", "value"]


def avro_parts(pipeline: Pipeline, topic: str) -> frozenset[Part]:
    """Return which parts of a topic's records some processor reads or writes as Avro.

    Dead letters have what the records had that their processor reads.
    """
    dead = [each for each in pipeline.processors if pipeline.dead_letter_topic(each) == topic]
    topics = {name for each in dead for name in pipeline.in_topics(each)} or {topic}
    return frozenset(
        part
        for processor in pipeline.processors
        for name, part, serde in _serdes(pipeline, processor)
        if name in topics and isinstance(serde, SchemaSerde) and serde.kind == "avro"
    )


def _serdes(
    pipeline: Pipeline, processor: PipelineProcessor
) -> Iterator[tuple[str, Part, AnySerde | None]]:
    """Yield the serdes of the topics that a processor reads and writes."""
    spec = processor.spec
    own = spec.serdes if isinstance(spec, ClassSpec) else None
    for name, topic in pipeline.inputs(processor).items():
        source = processor.sources.get(name, SourceSpec())
        yield topic, "key", source.key or (None if own is None else own.key)
        yield topic, "value", source.value or (None if own is None else own.value)
    for name, topic in zip(processor.to, pipeline.out_topics(processor), strict=True):
        if own is not None:
            yield topic, "key", own.out_key
            yield topic, "value", own.out_value
        if isinstance(spec, SparkSpec) and name in spec.schema_sinks:
            yield topic, "value", spec.out_value
    if isinstance(spec, SparkSpec):
        for table in spec.topic_tables.values():
            yield table.topic, "key", table.key
            yield table.topic, "value", table.value

"""How to write records to a pipeline and to read its results, as commands to copy."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_pipeline.common.code.user_code import UserCode
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.serde_specs import AnySerde
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    Serdes,
    SparkSpec,
    TopologySpec,
)
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.pipeline.units import group_of

_TEXT = "string"
_TEXT_SAMPLE = "12"  # the built-in type `sum` reads numbers
_SAMPLES: Mapping[str, Any] = {
    _TEXT: _TEXT_SAMPLE,
    "json": {"amount": 12},
    "json_decimals": {"amount": 12},
    "boolean": True,
    "uuid": "00000000-0000-0000-0000-000000000001",
    **dict.fromkeys(("integer", "int32", "int64", "float32", "float64"), 12),
}


def hints(pipeline: Pipeline, config_file: Path, code: UserCode) -> list[str]:
    """Return shell commands that write a record to each source, follow each sink, and show state.

    Topologies are built with `code`, since only they know their serdes.
    """
    config = shlex.quote(str(config_file))
    arcs = pipeline.arcs
    groups = {
        replica.task.processor: group_of(replica, code)
        for replica in replicas(pipeline)
        if isinstance(replica.spec, TopologySpec) and not replica.task.partition
    }
    lines: dict[str, None] = {}
    for processor in pipeline.processors:
        group = groups.get(processor.id)
        for topic, key, value in _inputs(processor, pipeline) if group is None else _read(group):
            if topic not in arcs:
                record = shlex.quote(json.dumps({"key": _sample(key), "value": _SAMPLES[value]}))
                options = _options(key, value)
                lines[f"echo {record} | pipeline topic write {config} {topic}{options}"] = None
    for processor in pipeline.processors:
        group = groups.get(processor.id)
        written = _outputs(processor, pipeline) if group is None else _written(group)
        for topic, key, value in written:
            if topic not in arcs:
                options = _options(key, value)
                lines[f"pipeline topic read {config} {topic}{options} --follow"] = None
    if any(processor.is_stateful for processor in pipeline.processors):
        lines[f"pipeline state list {config}"] = None
    return [*lines]


def _inputs(processor: PipelineProcessor, pipeline: Pipeline) -> Iterator[tuple[str, str, str]]:
    """Yield the topics that a processor reads, with the serdes of keys and values."""
    serdes = _serdes(processor)
    names = (*processor.from_, *processor.global_stores)
    for name, topic in zip(names, pipeline.read_topics(processor), strict=True):
        source = processor.sources.get(name)
        key = (source and source.key) or serdes.key
        yield topic, _known(key), _known((source and source.value) or serdes.value)


def _outputs(processor: PipelineProcessor, pipeline: Pipeline) -> Iterator[tuple[str, str, str]]:
    """Yield the topics that a processor writes, with the serdes of keys and values."""
    serdes, spec = _serdes(processor), processor.spec
    for name, topic in zip(processor.to, pipeline.out_topics(processor), strict=True):
        is_avro = isinstance(spec, SparkSpec) and name in spec.schema_sinks
        yield topic, _known(serdes.out_key), "avro" if is_avro else _known(serdes.out_value)


def _read(group: NodeGroup) -> Iterator[tuple[str, str, str]]:
    sources = (*group.sources, *(store.source for store in group.global_stores))
    for source in sources:
        for topic in source.topics:
            yield topic, _known(source.key_serde.name), _known(source.value_serde.name)


def _written(group: NodeGroup) -> Iterator[tuple[str, str, str]]:
    for sink in group.sinks:
        for topic in sink.topics:
            yield topic, _known(sink.key_serde.name), _known(sink.value_serde.name)


def _serdes(processor: PipelineProcessor) -> Serdes:
    spec = processor.spec
    if isinstance(spec, ClassSpec):
        return spec.serdes
    if isinstance(spec, SparkSpec) and spec.format == "json":
        return Serdes(key=_TEXT, value="json", out_key=_TEXT, out_value="json")
    return Serdes()


def _known(serde: AnySerde) -> str:
    """Return the serde for a command; bytes, and what is not built in, are shown as text."""
    return serde if isinstance(serde, str) and serde in _SAMPLES and serde != BYTES else _TEXT


def _sample(key: str) -> Any:
    return "ann" if key == _TEXT else _SAMPLES[key]


def _options(key: str, value: str) -> str:
    given = {"key": key, "value": value}
    return "".join(f" --{name} {serde}" for name, serde in given.items() if serde != _TEXT)

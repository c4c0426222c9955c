"""Finds the topics that sources with a pattern read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import SourceSpec


def with_matching_topics(pipeline: Pipeline, existing: Collection[str]) -> Pipeline:
    """Return the pipeline with the `existing` topics that its patterns match as further inputs.

    Those that a former version has found, and that are gone, are left out: nobody else would make
    them again. A topic that a processor reads anyway is not added again. Raises `ConfigError` for a
    pattern that matches no topic, or a topic that its own topology writes, which would be an
    endless loop.
    """
    return replace(
        pipeline,
        processors=tuple(
            _with_matching(processor, pipeline, sorted(existing))
            if processor.patterns
            else processor
            for processor in pipeline.processors
        ),
    )


def _with_matching(
    processor: PipelineProcessor, pipeline: Pipeline, existing: Collection[str]
) -> PipelineProcessor:
    processor = _without_gone(processor, existing)
    read = pipeline.read_topics(processor)
    written = {
        topic
        for other in pipeline.processors
        if _code(other) == _code(processor)
        for topic in pipeline.out_topics(other)
    }
    found: dict[str, str] = {}
    sources = dict(processor.sources)
    for given, pattern in zip(processor.spec.topic_patterns, processor.patterns, strict=True):
        source = SourceSpec(auto_offset_reset=given.auto_offset_reset)
        matching = [topic for topic in existing if pattern.fullmatch(topic)]
        if not matching:
            raise ConfigError(
                f'"{processor.id}": no topic matches the pattern "{pattern.pattern}" of a source. '
                "Create one first, or correct the pattern"
            )
        for topic in matching:
            if topic in written or topic in (SOURCE, SINK):
                why = "its topology writes" if topic in written else "has a reserved name"
                raise ConfigError(
                    f'"{processor.id}": the pattern "{pattern.pattern}" of a source matches the '
                    f'topic "{topic}", which {why}: narrow the pattern'
                )
            found[topic] = topic
            if source != SourceSpec():
                sources.setdefault(topic, source)
    new = [topic for topic in found if topic not in read]
    return replace(
        processor,
        from_=(*processor.from_, *new),
        topics={**processor.topics, **found},
        sources=sources,
    )


def _without_gone(processor: PipelineProcessor, existing: Collection[str]) -> PipelineProcessor:
    gone = {
        name
        for name in processor.from_
        if processor.topics.get(name) == name
        and name not in existing
        and any(pattern.fullmatch(name) for pattern in processor.patterns)
    }
    return replace(
        processor,
        from_=tuple(name for name in processor.from_ if name not in gone),
        topics={name: topic for name, topic in processor.topics.items() if name not in gone},
        sources={name: source for name, source in processor.sources.items() if name not in gone},
    )


def _code(processor: PipelineProcessor) -> tuple[object, object]:
    """Return what processors of the same topology have in common."""
    return processor.spec.what, processor.spec.parameters

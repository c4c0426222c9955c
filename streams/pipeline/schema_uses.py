"""Where a pipeline.yaml names serdes with schemas, and what the schema registry says about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafka_pipeline.common.config.yaml_positions import Items, Located, Map, Scalar, Value
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import AnySerde, ClassSpec, SchemaSerde, SourceSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile


class SchemaUse(NamedTuple):
    """A serde with schemas, for the keys or values of a topic that a processor reads or writes.

    `subject` is where its schemas are. `at` is its place in the file, or that of the source.
    """

    processor: str
    serde: SchemaSerde
    subject: str
    reads: bool
    at: Located


SchemaProblem = Callable[[SchemaUse], str]
"""Returns what is wrong with a use of schemas, or ""."""


def schema_uses(
    file: PipelineFile, pipeline: Pipeline, made: Iterable[tuple[Entry, PipelineProcessor]]
) -> Iterator[SchemaUse]:
    """Yield the uses of schemas by classes and their sources."""
    for entry, processor in made:
        spec = processor.spec
        if not isinstance(spec, ClassSpec):
            continue
        serdes = spec.serdes
        for name, topic in zip(processor.from_, pipeline.in_topics(processor), strict=True):
            source = processor.sources.get(name, SourceSpec())
            place = file.places.get(name, entry.at)
            for part, own, default in (
                ("key", source.key, serdes.key),
                ("value", source.value, serdes.value),
            ):
                at = _serde_place(file, entry, part) if own is None else place
                yield from _use(entry.id, own or default, f"{topic}-{part}", True, at)
        for topic in pipeline.out_topics(processor):
            for part, serde in (("key", serdes.out_key), ("value", serdes.out_value)):
                at = _serde_place(file, entry, f"out_{part}", part)
                yield from _use(entry.id, serde, f"{topic}-{part}", False, at)


def _use(
    processor: str, serde: AnySerde, default: str, reads: bool, at: Located
) -> Iterator[SchemaUse]:
    if isinstance(serde, SchemaSerde):
        yield SchemaUse(processor, serde, serde.subject or default, reads, at)


def _serde_place(file: PipelineFile, entry: Entry, *names: str) -> Located:
    """Return the place of the first of some keys in `serdes`, or else that of the entry."""
    items = file.root.items if isinstance(file.root, Items) else ()
    for item in items:
        id_ = _child(item, "id")
        if isinstance(id_, Scalar) and id_.value == entry.id:
            given = (_child(_child(item, "serdes"), name) for name in names)
            return next((value for value in given if value is not None), entry.at)
    return entry.at


def _child(value: Value | None, key: str) -> Value | None:
    pairs = value.pairs if isinstance(value, Map) else ()
    return next((pair.value for pair in pairs if pair.key == key), None)

"""Where a pipeline.yaml names serdes with schemas, and what the schema registry says about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kafka_pipeline.common.config.yaml_positions import Items, Located, Map, Scalar, Value
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.serde_specs import AnySerde, SchemaSerde
from kafka_pipeline.common.pipelines.specs import ClassSpec, SourceSpec, SparkSpec
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile


class SchemaUse(NamedTuple):
    """A serde with schemas, for the keys or values of a topic that a processor reads or writes.

    `subject` is where its schemas are. `at` is its place in the file, or that of the source.
    `columns` are those of the results that are written, if they are known.
    """

    processor: str
    serde: SchemaSerde
    subject: str
    reads: bool
    at: Located
    columns: Mapping[str, Any] | None = None


SchemaProblem = Callable[[SchemaUse], Sequence[str]]
"""Returns what is wrong with a use of schemas."""


def schema_uses(
    file: PipelineFile,
    pipeline: Pipeline,
    made: Iterable[tuple[Entry, PipelineProcessor]],
    columns: Mapping[str, Mapping[str, Any]],
) -> Iterator[SchemaUse]:
    """Yield the uses of schemas by classes, queries and their sources.

    `columns` are those of the results of queries, as far as they are known, by processor.
    """
    for entry, processor in made:
        spec = processor.spec
        if isinstance(spec, SparkSpec):
            for use in _of_query(file, pipeline, entry, processor, spec):
                yield use if use.reads else use._replace(columns=columns.get(processor.id))
        if not isinstance(spec, ClassSpec):
            continue
        serdes = spec.serdes
        for name, topic in pipeline.inputs(processor).items():
            source = processor.sources.get(name, SourceSpec())
            place = file.places.get(name, entry.at)
            for part, own, default in (
                ("key", source.key, serdes.key),
                ("value", source.value, serdes.value),
            ):
                at = place_of_key(file, entry, ("serdes", part)) if own is None else place
                yield from _use(entry.id, own or default, f"{topic}-{part}", True, at)
        for topic in pipeline.out_topics(processor):
            for part, serde in (("key", serdes.out_key), ("value", serdes.out_value)):
                at = place_of_key(file, entry, ("serdes", f"out_{part}"), ("serdes", part))
                yield from _use(entry.id, serde, f"{topic}-{part}", False, at)


def _of_query(
    file: PipelineFile,
    pipeline: Pipeline,
    entry: Entry,
    processor: PipelineProcessor,
    spec: SparkSpec,
) -> Iterator[SchemaUse]:
    for name, topic in pipeline.inputs(processor).items():
        source = processor.sources.get(name, SourceSpec())
        at = file.places.get(name, entry.at)
        yield from _use(entry.id, source.key or BYTES, f"{topic}-key", True, at)
        yield from _use(entry.id, source.value or BYTES, f"{topic}-value", True, at)
    for name, topic in zip(processor.to, pipeline.out_topics(processor), strict=True):
        if name in spec.schema_sinks:
            at = place_of_key(file, entry, ("out_value",), ("format",))
            yield from _use(entry.id, spec.out_value, f"{topic}-value", False, at)


def _use(
    processor: str, serde: AnySerde, default: str, reads: bool, at: Located
) -> Iterator[SchemaUse]:
    if isinstance(serde, SchemaSerde):
        yield SchemaUse(processor, serde, serde.subject or default, reads, at)


def place_of_key(file: PipelineFile, entry: Entry, *paths: tuple[str, ...]) -> Located:
    """Return the place of the first of some keys that is given, or else that of the entry."""
    items = file.root.items if isinstance(file.root, Items) else ()
    for item in items:
        id_ = _child(item, "id")
        if isinstance(id_, Scalar) and id_.value == (entry.part_of or entry.id):
            given = (_at_path(item, path) for path in paths)
            return next((value for value in given if value is not None), entry.at)
    return entry.at


def _at_path(item: Value, path: Iterable[str]) -> Value | None:
    found: Value | None = item
    for key in path:
        found = _child(found, key)
    return found


def _child(value: Value | None, key: str) -> Value | None:
    pairs = value.pairs if isinstance(value, Map) else ()
    return next((pair.value for pair in pairs if pair.key == key), None)

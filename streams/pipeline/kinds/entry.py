"""The content of a pipeline.yaml, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Items, Located, Value
from kafka_pipeline.common.pipelines.processors import SOURCE, OnError
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import ProcessorSpec, SourceSpec, SparkSpec
from kafka_pipeline.common.pipelines.store_specs import BYTES
from kafka_pipeline.streams.sql.stage import Stage


@dataclass(frozen=True, slots=True)
class Target:
    """One id in a `to`, and its place."""

    id: str
    at: Located


@dataclass(frozen=True, slots=True)
class Entry:
    """One processor as the file defines it; its targets might not exist.

    `targets` is empty if the entry has no readable `to`. `sources` has the names in `from`. `was`
    is its former id, or "". A query that is cut has several `stages`, each of which becomes an
    entry; these have the id of the one in the file in `part_of`.
    """

    id: str
    at: Located
    spec: ProcessorSpec
    targets: tuple[Target, ...]
    on_error: OnError
    max_dead_letters_per_minute: int | None = None
    sources: tuple[Target, ...] = ()
    was: str = ""
    stages: tuple[Stage, ...] = ()
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of a pipeline.yaml; its processors might not fit together.

    `sources` and `sinks` map the names that the file defines to topics, without those of
    config.yaml; "" replaces a topic that is wrong. `source_specs` says how sources are read that
    have settings, and `source_schemas` which columns queries find in their values. `places` has the
    positions of the names in the file. `pinned` says by which Avro schemas queries read sources, by
    name.
    """

    root: Value
    entries: Sequence[Entry]
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)
    source_specs: Mapping[str, SourceSpec] = field(default_factory=dict)
    source_schemas: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Located] = field(default_factory=dict)
    pinned: Mapping[str, SchemaSerde] = field(default_factory=dict)

    @property
    def topics(self) -> Mapping[str, str]:
        """The topics of sources and sinks together; their names differ."""
        return {**self.sources, **self.sinks}

    @property
    def is_whole(self) -> bool:
        """Whether no entry was dropped because of a mistake in it."""
        items = self.root.items if isinstance(self.root, Items) else ()
        found = {entry.part_of or entry.id for entry in self.entries}
        return 0 < len(found) == len(items)

    def read_as(self, name: str, spec: SparkSpec) -> SourceSpec:
        """Return how a query reads a source; JSON and text are bytes to it.

        Keys of change events are written as the values are, unless the source says how.
        """
        given = self.source_specs.get(name, SourceSpec())
        value = given.value or spec.value
        key = given.key or (value if given.format is not None else BYTES)
        if isinstance(value, SchemaSerde):
            value = self.pinned.get(name, value)
        if isinstance(key, SchemaSerde) and given.key is None:
            key = SchemaSerde(kind=key.kind)
        return structs.replace(
            given,
            key=key if isinstance(key, SchemaSerde) else None,
            value=value if isinstance(value, SchemaSerde) else None,
        )

    def inputs(self, entry: Entry) -> tuple[str, ...]:
        """Return the names of the inputs of an entry: sources, and processors that send to it."""
        senders = tuple(
            other.id
            for other in self.entries
            if any(target.id == entry.id for target in other.targets)
        )
        return (*(source.id for source in entry.sources), *senders) or (SOURCE,)

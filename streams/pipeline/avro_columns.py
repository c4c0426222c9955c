"""Gives queries over Avro the columns of its schemas, and fixes by which schema they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from msgspec import structs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.yaml_positions import Located, Problems
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.pipelines.processors import SOURCE
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import SparkSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.schema_serdes import columns_of_rows
from kafka_pipeline.streams.pipeline.source_schemas import with_schemas_of_inputs

S = TypeVar("S", bound=SparkSpec)


def with_columns(file: PipelineFile, config: Config, problems: Problems) -> PipelineFile:
    """Return a pipeline whose queries over Avro have the columns of its schemas.

    Such a query reads each source by the schema that its columns come from: the one that the source
    names or, of its subject, the latest one at the moment. Asks the registry for those that are not
    in files. Reports schemas without columns, and a registry that does not answer.
    """
    if not any(isinstance(_read_value(entry), SchemaSerde) for entry in file.entries):
        return file
    sources = _Sources(file, config, problems)
    specs = {
        entry.id: _completed(entry, sources, problems)
        if isinstance(_read_value(entry), SchemaSerde)
        else entry.spec
        for entry in file.entries
    }
    entries = [replace(entry, spec=_with_stages(specs[entry.id], specs)) for entry in file.entries]
    return replace(file, entries=entries, pinned=sources.pinned)


def _read_value(entry: Entry) -> Any:
    return entry.spec.value if isinstance(entry.spec, SparkSpec) else None


def _with_stages(spec: Any, specs: Mapping[str, Any]) -> Any:
    """Return a spec with the columns of the stages that it reads."""
    if not isinstance(spec, SqlSpec) or not spec.stages:
        return spec
    stages = {
        name: structs.replace(
            _with_stages(stage, specs), schema=specs[name].schema, schemas=specs[name].schemas
        )
        for name, stage in spec.stages.items()
    }
    return structs.replace(spec, stages=stages)


def _completed(entry: Entry, sources: _Sources, problems: Problems) -> Any:
    """Return the spec of an entry with the columns of its inputs and tables."""
    spec = entry.spec
    assert isinstance(spec, SparkSpec)
    where = f'"{entry.id}": '
    tables = {
        name: structs.replace(table, schema=sources.columns(table.topic, table.schema, spec, entry))
        if sources.is_avro(table.topic, spec)
        else table
        for name, table in spec.topic_tables.items()
    }
    spec = structs.replace(spec, topic_tables=tables)
    given = dict(spec.schemas) if isinstance(spec, SqlSpec) else {}
    stages = spec.stages if isinstance(spec, SqlSpec) else {}
    inputs = [name for name in sources.file.inputs(entry) if name not in stages]
    avro = [name for name in inputs if sources.is_avro(name, spec)]
    if not avro:
        if inputs and not spec.schema and not given:
            problems.add(entry.at, f'{where}missing key "schema": none of its inputs is Avro')
        return spec
    found = {name: sources.columns(name, given.get(name, ""), spec, entry) for name in avro}
    others = {name: given.get(name, spec.schema) for name in inputs if name not in found}
    for name in (each for each, schema in others.items() if not schema):
        problems.add(entry.at, f'{where}schema must have the columns of "{name}", which is no Avro')
    if spec.schema and not others:
        found = {name: sources.columns(name, spec.schema, spec, entry) for name in avro}
    schemas = {name: {**found, **others}[name] for name in inputs}
    # Rows of Avro may have NaN, which JSON of others must not have.
    spec = structs.replace(spec, lenient=not others)
    return with_schemas_of_inputs(entry, spec, schemas, problems)


@dataclass(slots=True)
class _Sources:
    """The schemas of the sources, each of which is asked for once."""

    file: PipelineFile
    config: Config
    problems: Problems
    pinned: dict[str, SchemaSerde] = field(default_factory=dict)
    _columns: dict[str, str] = field(default_factory=dict)

    def is_avro(self, name: str, spec: SparkSpec) -> bool:
        """Whether a query reads Avro from an input, which may be a processor."""
        is_source = name in (SOURCE, *self.file.sources)
        return is_source and self.file.read_as(name, spec).value is not None

    def columns(self, name: str, given: str, spec: SparkSpec, entry: Entry) -> str:
        """Return the columns of a source as DDL; those of change events may be `given`."""
        read = self.file.read_as(name, spec)
        assert isinstance(read.value, SchemaSerde)
        if given and read.format is not None:
            return given
        at = self.file.places.get(name, entry.at)
        if given:
            self.problems.add(
                entry.at,
                f'"{entry.id}": leave the schema of "{name}" out: its columns are those of the '
                "Avro schema",
            )
        if name not in self._columns:
            self._columns[name] = self._find(name, read.value, read.format is not None, at)
        return self._columns[name]

    def _find(self, name: str, serde: SchemaSerde, is_events: bool, at: Located) -> str:
        topic = self.file.sources.get(name, self.config.topic_names.source)
        subject = serde.subject or f"{topic}-value"
        try:
            version, columns = columns_of_rows(
                self.config.schema_registry, subject, serde, is_events=is_events
            )
        except (ConfigError, UnavailableError, ValueError) as error:
            self.problems.add(at, f'"{name}": the columns of subject {subject}: {error}')
            return ""
        if not is_events:
            self.pinned[name] = structs.replace(serde, version=version)
        return columns

"""Gives queries over JSON the columns that their sources say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Items, Map, Problems, plain
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import SparkSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile

S = TypeVar("S", bound=SparkSpec)


def with_source_schemas(file: PipelineFile, problems: Problems) -> PipelineFile:
    """Return a pipeline whose queries over JSON have a schema for each of their inputs.

    One that the processor gives counts, otherwise that of the source. Tables of topics take theirs
    in the same way. Reports inputs without a schema.
    """
    own = _with_own_schema(file)
    entries = [_completed(entry, entry.id in own, file, problems) for entry in file.entries]
    return replace(file, entries=entries)


def _completed(entry: Entry, has_own: bool, file: PipelineFile, problems: Problems) -> Entry:
    spec = entry.spec
    if not isinstance(spec, SparkSpec) or spec.format != "json":
        return entry
    spec = _with_tables(spec, file)
    given = dict(spec.schemas) if isinstance(spec, SqlSpec) else {}
    if has_own and not given:
        return replace(entry, spec=spec)
    inputs = file.inputs(entry)
    known = {name: file.source_schemas[name] for name in inputs if _has_schema(name, spec, file)}
    if isinstance(spec.value, SchemaSerde):
        # The columns of Avro, and what is missing, are found later.
        is_map = isinstance(spec, SqlSpec) and len(inputs) > 1
        found = _with_schema(spec, "", {**known, **given}) if is_map else spec
        if known and not is_map:
            found = with_schemas_of_inputs(entry, spec, known, problems)
        return replace(entry, spec=found)
    lacking = [name for name in inputs if name not in known]
    if lacking and not given:
        problems.add(
            entry.at,
            f'"{entry.id}": missing key "schema" (the columns of the values, such as "name STRING, '
            f'price DOUBLE"): under sources, none is given for {" and ".join(lacking)}',
        )
    elif known and {*known, *given} == {*inputs}:
        # Otherwise, a map lacks an input, which is reported where it is compared with them.
        spec = with_schemas_of_inputs(entry, spec, {**known, **given}, problems)
    return replace(entry, spec=spec)


def _with_own_schema(file: PipelineFile) -> set[str]:
    """Return the ids of the processors that give a schema, right or wrong."""
    listed = file.root.items if isinstance(file.root, Items) else ()
    given = [
        {each.key: each.value for each in item.pairs} for item in listed if isinstance(item, Map)
    ]
    return {str(plain(each["id"])) for each in given if "id" in each and "schema" in each}


def _has_schema(name: str, spec: SparkSpec, file: PipelineFile) -> bool:
    """Whether the schema of a source says the columns of a query that reads it."""
    read = file.read_as(name, spec)
    return name in file.source_schemas and (read.value is None or read.format is not None)


def with_schemas_of_inputs(
    entry: Entry, spec: S, schemas: Mapping[str, str], problems: Problems
) -> S:
    """Return a spec with the schemas of its inputs: one, if all are the same.

    Reports inputs that differ, unless the query joins them or is cut into stages.
    """
    if len(set(schemas.values())) == 1:
        return _with_schema(spec, next(iter(schemas.values())), {})
    if isinstance(spec, SqlSpec) and (spec.join is not None or entry.stages):
        return _with_schema(spec, "", schemas)
    problems.add(
        entry.at,
        f'"{entry.id}": its inputs have different columns ({" and ".join(schemas)}): read each in '
        "a query of its own, or join them",
    )
    return spec


def _with_schema(spec: S, schema: str, schemas: Mapping[str, str]) -> S:
    """Return a spec with schemas, also for its stages."""
    if not isinstance(spec, SqlSpec):
        return structs.replace(spec, schema=schema)
    stages = {name: _with_schema(stage, schema, schemas) for name, stage in spec.stages.items()}
    return structs.replace(spec, schema=schema, schemas=schemas, stages=stages)


def _with_tables(spec: S, file: PipelineFile) -> S:
    """Return a spec whose tables of topics have the columns of their sources."""
    tables = {
        name: structs.replace(table, schema=file.source_schemas[table.topic])
        if not table.schema and _has_schema(table.topic, spec, file)
        else table
        for name, table in spec.topic_tables.items()
    }
    if not isinstance(spec, SqlSpec):
        return structs.replace(spec, topic_tables=tables)
    stages = {name: _with_tables(stage, file) for name, stage in spec.stages.items()}
    return structs.replace(spec, topic_tables=tables, stages=stages)

"""Which processors read topics of change events, and that each of them can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.lookup_tables import TopicTableSpec
from kafka_pipeline.common.pipelines.processors import ArcKind
from kafka_pipeline.common.pipelines.specs import SparkSpec, SqlSpec
from kafka_pipeline.streams.pipeline.arc_kinds import ArcKinds
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile

_AS_STREAM = "or read the changes as a stream, by a source of the topic without format"


def with_change_events(file: PipelineFile, kinds: ArcKinds, problems: Problems) -> PipelineFile:
    """Return a pipeline whose queries say that they read change events.

    Those without groups that pass the rows on pass deletions on too. `kinds` are those of the
    pipeline. Reports each processor that cannot read change events.
    """
    sources = {name for name, spec in file.source_specs.items() if spec.format is not None}
    if not sources:
        return file
    entries = []
    for entry in file.entries:
        read = sources.intersection(file.inputs(entry))
        spec = entry.spec
        if read and (wrong := _problem(entry, file)):
            problems.add(entry.at, f'"{entry.id}": {wrong}')
        elif isinstance(spec, SqlSpec) and _is_by_record(spec):
            spec = _passing(entry, spec, sources, kinds, problems)
        if isinstance(spec, SparkSpec):
            tables = _tables(spec.topic_tables, sources)
            spec = structs.replace(spec, reads_changes=bool(read), topic_tables=tables)
        entries.append(replace(entry, spec=spec))
    return replace(file, entries=entries)


def _problem(entry: Entry, file: PipelineFile) -> str:
    """Return why a processor cannot read a source of change events; "" if it can."""
    if not isinstance(entry.spec, SqlSpec):
        return (
            "only queries of type: sql get the rows of a source with format: debezium. A topology "
            "reads the topic as a table with serdes.debezium; a class gets the changes with value: "
            "debezium_changes, from a source without format"
        )
    if entry.spec.join is not None:
        return (
            "it joins inputs, and one of them has format: debezium. Read that in a query of its "
            "own, such as SELECT * FROM its name, and join the results"
        )
    if len(file.inputs(entry)) > 1:
        return (
            "it reads more than one input, and one of them has format: debezium: a key of one may "
            "be that of another. Read the others in a query of their own"
        )
    return ""


def _passing(
    entry: Entry, spec: SqlSpec, sources: set[str], kinds: ArcKinds, problems: Problems
) -> SqlSpec:
    """Return a query without groups that passes deletions on, if it passes rows of a table on."""
    given = kinds.given(entry)
    if given.origin not in sources:
        return spec
    if given.kind is ArcKind.UPSERTS:
        return structs.replace(spec, changelog=True)
    if given.changed == entry.id:
        problems.add(
            entry.at,
            f'"{entry.id}": it passes the rows of the table "{given.origin}" on, but '
            f"{given.problem}, so nothing would tell which row a deletion is of: select key as it "
            f"is, {_AS_STREAM}",
        )
    return spec


def _tables(tables: Mapping[str, TopicTableSpec], sources: set[str]) -> dict[str, TopicTableSpec]:
    return {
        name: structs.replace(table, has_changes=table.topic in sources)
        for name, table in tables.items()
    }


def _is_by_record(spec: SqlSpec) -> bool:
    return spec.grouping is None and spec.join is None and spec.over is None

"""Gives stages that join results that change a key, where the text of the query has none.

Such a stage comes from a SELECT that joins and groups. A result goes once its rows change, so it
needs a key that tells it from all others.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.streams.pipeline.arc_kinds import ArcKinds
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile


def with_join_keys(file: PipelineFile) -> PipelineFile:
    """Return a pipeline whose stages that join upserts give a key, if that is possible."""
    for number in range(len(file.entries)):
        # A stage follows those that it reads, which have their keys.
        entry = file.entries[number]
        key = ArcKinds(file).made_join_key(entry) if entry.part_of else None
        if key is not None:
            (stage,) = entry.stages
            query = stage.with_column(f"{key} AS key")
            made = replace(entry, stages=(query,))
            entries = [made if each is entry else each for each in file.entries]
            entries = [_reading(each, entry.id, query.query) for each in entries]
            file = replace(file, entries=entries)
    return file


def _reading(entry: Entry, id_: str, query: str) -> Entry:
    """Return an entry that knows a stage with this id by another query."""
    if not isinstance(entry.spec, SqlSpec):
        return entry
    if entry.id == id_:
        return replace(entry, spec=structs.replace(entry.spec, query=query))
    return replace(entry, spec=_with_query(entry.spec, id_, query))


def _with_query(spec: SqlSpec, id_: str, query: str) -> SqlSpec:
    stages = {
        name: structs.replace(stage, query=query) if name == id_ else _with_query(stage, id_, query)
        for name, stage in spec.stages.items()
    }
    return structs.replace(spec, stages=stages)

"""Gives stages whose results change a key, where the text of the query has none: those that join.

Such a stage comes from a SELECT that joins more, or groups. A result goes once its rows change, or
once a row has a partner, so it needs a key that tells it from all others.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.pipelines.specs import SqlSpec
from kafka_pipeline.streams.pipeline.arc_kinds import ArcKinds
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.sql.stage import Stage


def with_join_keys(file: PipelineFile) -> PipelineFile:
    """Return a pipeline whose stages that take back what a join gave have a key, if possible."""
    kinds = ArcKinds(file)
    for at in range(len(file.entries)):
        # A stage follows those that it reads, so these have their keys.
        entry = file.entries[at]
        key = kinds.made_join_key(entry) if entry.part_of else None
        if key is not None:
            (stage,) = entry.stages
            made = stage.with_marks(key.marked).with_column(f"{key.expression} AS key")
            file = replace(
                file, entries=[_with_stage(each, entry.id, made) for each in file.entries]
            )
            kinds = ArcKinds(file)
    return file


def _with_stage(entry: Entry, id_: str, stage: Stage) -> Entry:
    """Return an entry with another query for a stage: its own, or one that it reads."""
    if not isinstance(entry.spec, SqlSpec):
        return entry
    if entry.id == id_:
        spec = structs.replace(entry.spec, query=stage.query)
        return replace(entry, stages=(stage,), spec=spec)
    return replace(entry, spec=_reading(entry.spec, id_, stage.query))


def _reading(spec: SqlSpec, id_: str, query: str) -> SqlSpec:
    stages = {
        name: structs.replace(stage, query=query) if name == id_ else _reading(stage, id_, query)
        for name, stage in spec.stages.items()
    }
    return structs.replace(spec, stages=stages)

"""Queries with `OVER (…)` in pipeline.yaml: their keys, and what they become."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import OVER_TOPIC, OverSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import (
    CLOSE_AFTER_IDLE,
    DEFAULT_GRACE_MS,
    EMIT,
    GRACE,
    LATE_TO,
    MAX_COLLECTED,
)
from kafka_pipeline.streams.pipeline.kinds.spark import through_topic, with_late
from kafka_pipeline.streams.sql.query_text import read_over
from kafka_pipeline.streams.sql.spec import QueryError


def read_over_keys(
    fields: Fields, query: str, tables: Collection[str], problems: Problems
) -> OverSpec | None:
    """Return the `OVER (…)` of a query with these lookup tables, or None without one."""
    try:
        over = read_over(query, tables)
    except QueryError as error:
        problems.add(fields.at("query"), str(error))
        return None
    if over is None:
        return None
    for key in (EMIT, CLOSE_AFTER_IDLE, MAX_COLLECTED):
        if fields.get(key.name) is not None:
            problems.add(
                fields.at(key.name),
                f"{key.name} belongs to a query with GROUP BY: leave it out with OVER (…)",
            )
    grace_ms = fields.duration(GRACE)
    if grace_ms is None:
        fields.require(replace(GRACE, required=True))
    return structs.replace(
        over,
        grace_ms=DEFAULT_GRACE_MS if grace_ms is None else grace_ms,
        late_to=fields.text(LATE_TO) or None,
    )


def processors_of_over(
    processor: PipelineProcessor,
    over: OverSpec,
    file: PipelineFile,
    config: Config,
    problems: Problems,
    entry: Entry,
) -> list[PipelineProcessor]:
    """Return the processors of a query: one, or two if its rows go through an internal topic."""
    spec = processor.spec
    if over.stage == "whole":
        return [with_late(processor, over.late_to, file)]
    assert isinstance(spec, SqlSpec)
    front = structs.replace(spec, over=structs.replace(over, stage="rows"))
    names = config.topic_names
    found = through_topic(
        processor, front, OVER_TOPIC, over.late_to, file, names, (), problems, entry
    )
    return [*found]

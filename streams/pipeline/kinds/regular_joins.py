"""Joins of two inputs without bounds of time in pipeline.yaml: their keys, and what they become."""

from __future__ import annotations

from msgspec import structs

from kafka_pipeline.common.config import durations
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import Text
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import PipelineProcessor
from kafka_pipeline.common.pipelines.specs import (
    JOIN_TOPIC,
    JoinedBy,
    JoinSpec,
    RegularJoinSpec,
    SqlSpec,
)
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import GRACE, LATE_TO
from kafka_pipeline.streams.pipeline.kinds.kind import logged
from kafka_pipeline.streams.pipeline.kinds.spark import through_topic, with_late
from kafka_pipeline.streams.sql.join_bounds import EXAMPLE
from kafka_pipeline.streams.sql.state_stores import join_stores

_FOREVER = "none"
TTL = Text(
    name="ttl",
    doc="how far apart in time the rows of a join without bounds of time may be, such as `7 d`; "
    "`none` for any time, which keeps them forever. Required there, and for results that change",
    about='how far apart rows may be, such as "7 d", or "none" for any time',
    pattern=rf"^{_FOREVER}$|{durations.pattern(durations.UNITS, 1)}",
)


def read_regular_join(
    fields: Fields, join: JoinSpec, regular: RegularJoinSpec, problems: Problems
) -> JoinSpec:
    """Return a join with how long its rows are kept; each mistake goes to `problems`."""
    ttl = fields.text(TTL)
    if not ttl:
        problems.add(
            fields.at("query"),
            f"the query joins {join.left} with {join.right}, which are inputs, as tables has "
            "neither. The join does not have the keys of both and bounds of time, so say how far "
            "apart in time rows may be: ttl: 7 d, or another time, or ttl: none, which keeps them "
            f"forever. Or write bounds, as in {EXAMPLE}",
        )
    if fields.get(GRACE.name) is not None:
        problems.add(
            fields.at(GRACE.name),
            "grace belongs to windows and to joins with bounds of time: leave it out. A record is "
            "late once ttl is over",
        )
    late_to = fields.text(LATE_TO) or None
    if late_to is not None and ttl == _FOREVER:
        problems.add(fields.at(LATE_TO.name), "no record is late with ttl: none: leave late_to out")
    return structs.replace(join, regular=with_ttl(fields, regular, problems), late_to=late_to)


def with_ttl(fields: Fields, regular: RegularJoinSpec, problems: Problems) -> RegularJoinSpec:
    """Return a regular join with its `ttl`, if that is given."""
    ttl, ttl_ms = fields.text(TTL), None
    if ttl and ttl != _FOREVER:
        ttl_ms = durations.parsed(ttl, durations.UNITS, 1)
        if ttl_ms is None:
            problems.add(
                fields.at(TTL.name), f'ttl must be a time such as "7 d", or none, got "{ttl}"'
            )
    return structs.replace(regular, ttl_ms=ttl_ms)


def refuse_ttl(fields: Fields, problems: Problems) -> None:
    """Report a `ttl` of a query that joins no inputs."""
    if fields.get(TTL.name) is not None:
        problems.add(
            fields.at(TTL.name),
            "ttl belongs to a join of two inputs without bounds of time: leave it out",
        )


def processors_of_join(
    processor: PipelineProcessor,
    join: JoinSpec,
    file: PipelineFile,
    config: Config,
    problems: Problems,
    entry: Entry,
) -> list[PipelineProcessor]:
    """Return the processors of a join: one, or two if its rows go through an internal topic."""
    regular, spec = join.regular, processor.spec
    if regular is None or regular.stage == "whole":
        return [with_late(processor, join.late_to, file)]
    assert isinstance(spec, SqlSpec)
    rows = structs.replace(join, regular=structs.replace(regular, stage="rows"))
    front = structs.replace(spec, join=rows)
    names, stores = config.topic_names, logged(join_stores(rows))
    found = through_topic(
        processor, front, JOIN_TOPIC, join.late_to, file, names, stores, problems, entry
    )
    return [*found]


def joined_by(join: JoinSpec | None) -> JoinedBy | None:
    """Return by what rows of a join without bounds of time meet; `None` for other queries."""
    if join is None or join.regular is None:
        return None
    if join.regular.stage != "whole":
        return "columns"
    return "key and columns" if join.regular.also_by_columns else "key"

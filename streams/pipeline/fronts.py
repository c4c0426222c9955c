"""Puts what makes rows of groups into the tasks of the join whose results are grouped.

Between the two, the pairs of a join would go through a topic as JSON, to tasks that keep nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.pipelines.processors import OnError, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import GROUPS_TOPIC, SqlSpec
from kafka_pipeline.streams.pipeline.topics import Made


def with_fronts_in_joins(made: Mapping[str, Made]) -> dict[str, Made]:
    """Return the processors of a pipeline by id, with fewer tasks and topics for the same queries.

    A join without bounds of time gets the front of the query with groups that alone reads it, both
    being stages of one query. A front stays where it is if it keeps something, or has windows,
    whose late records are those of its own input. So it does unless `on_error` is `fail`: a result
    that it rejects would be a whole row of the join.
    """
    found = dict(made)
    for _, front in made.values():
        sender = found.get(front.from_[0]) if len(front.from_) == 1 else None
        if sender is not None and _is_front(front) and _can_have(sender[1], front):
            found[sender[1].id] = sender[0], _with_front(sender[1], front)
            del found[front.id]
    return found


def _is_front(processor: PipelineProcessor) -> bool:
    """Whether all that a processor does is to make rows of groups, without windows."""
    spec = processor.spec
    if not isinstance(spec, SqlSpec) or spec.grouping is None or spec.grouping.stage != "rows":
        return False
    return (
        spec.grouping.window is None
        and not spec.changelog
        and not processor.stores
        and not spec.topic_tables
        and processor.on_error is OnError.FAIL
    )


def _can_have(sender: PipelineProcessor, front: PipelineProcessor) -> bool:
    """Whether a processor is a join that gives its results to a front alone, and takes none back.

    A semi join has results of rows on one side.
    """
    spec = sender.spec
    if not isinstance(spec, SqlSpec) or spec.join is None or spec.join.regular is None:
        return False
    regular = spec.join.regular
    is_read_alone = spec.is_inner and sender.to == (front.entry,)
    takes_back = spec.join.keeps or regular.only == "anti" or spec.join.changing
    gives = regular.stage != "rows" and not takes_back
    return is_read_alone and gives


def _with_front(join: PipelineProcessor, front: PipelineProcessor) -> PipelineProcessor:
    """Return a join that sends the rows of a front; what is late goes to `late_to` ahead of it."""
    assert isinstance(join.spec, SqlSpec), "it is a join"
    assert join.spec.join is not None, "it is a join"
    assert isinstance(front.spec, SqlSpec), "it has groups"
    spec = structs.replace(
        join.spec, join=structs.replace(join.spec.join, late_to=None), front=front.spec
    )
    read = {name: topic for name, topic in join.topics.items() if name in join.from_}
    written = {GROUPS_TOPIC: front.topics[GROUPS_TOPIC]}
    return replace(join, spec=spec, to=(GROUPS_TOPIC,), topics={**read, **written})

"""How the graph of a new version differs from that of the version that runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from kafka_pipeline.common.pipelines.links import Link, links
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import LoggedStore, PipelineProcessor
from kafka_pipeline.deployment.renames import renames
from kafka_pipeline.operations.rehearsal.comparer import Side
from kafka_pipeline.operations.rehearsal.report_json import Shown

_SETTINGS = ("on_error", "max_dead_letters_per_minute", "sources")


class Change(StrEnum):
    """What a new version does to a processor."""

    SAME = "same"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class ShownProcessor(Shown, frozen=True, kw_only=True):
    """A processor of a version, and in which words it differs if it is `CHANGED`."""

    id: str
    type: str
    change: Change = Change.SAME
    differs: tuple[str, ...] = ()


class ShownVersion(Shown, frozen=True, kw_only=True):
    """A version as a graph."""

    processors: tuple[ShownProcessor, ...]
    links: tuple[Link, ...]


def shown_versions(
    before: Pipeline, after: Pipeline, other_code: Collection[str] = ()
) -> dict[Side, ShownVersion]:
    """Return both versions as graphs, with marks of what changes.

    Both must have the topics of the same job. `other_code` are the processors of the new version
    whose code is not what the job runs.
    """
    had = {each.id: each for each in before.processors}
    former = {each.id: each.id for each in after.processors} | renames(before, after)
    changed: dict[Side, dict[str, tuple[str, ...]]] = {side: {} for side in Side}
    for new in after.processors:
        old = had.get(former[new.id])
        if old is not None:
            words = (*_differences(old, new), *(["code"] if new.id in other_code else []))
            if before.task_count(old) != after.task_count(new):
                words = (*words, "number of tasks")
            changed[Side.OLD][old.id] = changed[Side.NEW][new.id] = words
    return {
        Side.OLD: _shown(before, Change.REMOVED, changed[Side.OLD]),
        Side.NEW: _shown(after, Change.ADDED, changed[Side.NEW]),
    }


def _shown(
    pipeline: Pipeline, alone: Change, changed: Mapping[str, tuple[str, ...]]
) -> ShownVersion:
    """Return a version; `alone` is the mark of processors without a counterpart in `changed`."""

    def processor(its: PipelineProcessor) -> ShownProcessor:
        words = changed.get(its.id)
        change = alone if words is None else Change.CHANGED if words else Change.SAME
        return ShownProcessor(id=its.id, type=its.spec.type, change=change, differs=words or ())

    return ShownVersion(
        processors=tuple(map(processor, pipeline.processors)), links=tuple(links(pipeline))
    )


def _differences(old: PipelineProcessor, new: PipelineProcessor) -> Iterator[str]:
    if old.id != new.id:
        yield f"id, was {old.id}"
    if old.spec.type != new.spec.type:
        yield "type"
    elif old.spec != new.spec:
        yield "settings"
    for name in _SETTINGS:
        if getattr(old, name) != getattr(new, name):
            yield name
    if old.from_ != new.from_:
        yield "inputs"
    if old.to != new.to:
        yield "outputs"
    if old.topics != new.topics:
        yield "topics"
    if _unlike(old.stores, new.stores):
        yield "stores"


def _unlike(old: tuple[LoggedStore, ...], new: tuple[LoggedStore, ...]) -> bool:
    """Whether stores differ; versions of earlier engines say nothing about contents."""
    pairs = {store.name: [store] for store in old}
    for store in new:
        pairs.setdefault(store.name, []).append(store)
    return any(
        len(pair) == 1
        or pair[0].persistent != pair[1].persistent
        or (None not in (contents := [each.content for each in pair]) and len({*contents}) > 1)
        for pair in pairs.values()
    )

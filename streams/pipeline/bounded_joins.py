"""Makes joins with bounds of time regular ones where they read results that change.

A row may be taken out at any time, also when no partner can come any more. So bounds do not say how
long rows are kept: `ttl` does, and they are conditions like others.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import ArcKind
from kafka_pipeline.common.pipelines.specs import JoinSpec, SqlSpec
from kafka_pipeline.streams.pipeline.arc_kinds import ArcKinds
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.group_keys import GRACE
from kafka_pipeline.streams.pipeline.schema_uses import place_of_key


def with_bounds_as_conditions(file: PipelineFile, problems: Problems) -> PipelineFile:
    """Return a pipeline whose joins of upserts have no bounds of time, where `ttl` is given.

    Reports a `ttl` that no join needs, and a `grace` that is missing next to one.
    """
    kinds, waiting = ArcKinds(file), [each for each in file.entries if _bounded(each)]
    # What one of them gives changes too, from then on.
    while found := next((each for each in waiting if _reads_updates(each, kinds)), None):
        waiting.remove(found)
        file = _with_entry(file, _without_bounds(file, found, problems))
        kinds = ArcKinds(file)
    needed = {_root(each) for each in file.entries if _has_ttl(each)}
    for entry in waiting:
        if _root(entry) not in needed:
            needed.add(_root(entry))
            problems.add(
                place_of_key(file, entry, ("ttl",)),
                "ttl belongs to a join of two inputs without bounds of time, and these bounds say "
                "how long rows are kept: leave it out",
            )
        elif _lacks_grace(file, entry):
            problems.add(
                entry.at,
                f'"{entry.id}": missing key "grace" ({GRACE.about}): an outer join of records with '
                "bounds of time needs it, whatever ttl says",
            )
        file = _with_entry(file, _with_join(entry, over_updates=None))
    return file


def _bounded(entry: Entry) -> bool:
    join = _join(entry)
    return join is not None and join.over_updates is not None


def _has_ttl(entry: Entry) -> bool:
    join = _join(entry)
    return join is not None and join.regular is not None


def _reads_updates(entry: Entry, kinds: ArcKinds) -> bool:
    return kinds.read(entry).kind is not ArcKind.RECORDS


def _lacks_grace(file: PipelineFile, entry: Entry) -> bool:
    """Whether it is not said how long rows without a partner wait."""
    join = _join(entry)
    is_outer = join is not None and bool(join.keeps)
    return is_outer and place_of_key(file, entry, ("grace",)) is entry.at


def _without_bounds(file: PipelineFile, entry: Entry, problems: Problems) -> Entry:
    join = _join(entry)
    assert join is not None, "it joins"
    regular = join.over_updates
    assert regular is not None, "its ttl is given"
    if join.late_to is not None and regular.ttl_ms is None:
        problems.add(
            place_of_key(file, entry, ("late_to",)),
            f'"{entry.id}": it joins results that change, and no record is late with ttl: none: '
            "leave late_to out",
        )
    return _with_join(
        entry, before_ms=0, after_ms=0, grace_ms=0, regular=regular, over_updates=None
    )


def _join(entry: Entry) -> JoinSpec | None:
    return entry.spec.join if isinstance(entry.spec, SqlSpec) else None


def _with_join(entry: Entry, **changes: object) -> Entry:
    assert isinstance(entry.spec, SqlSpec), "it joins"
    assert entry.spec.join is not None, "it joins"
    join = structs.replace(entry.spec.join, **changes)
    return replace(entry, spec=structs.replace(entry.spec, join=join))


def _with_entry(file: PipelineFile, entry: Entry) -> PipelineFile:
    entries = [entry if each.id == entry.id else each for each in file.entries]
    return replace(file, entries=entries)


def _root(entry: Entry) -> str:
    """Return the id of the entry of the file that an entry is a part of."""
    return entry.part_of or entry.id

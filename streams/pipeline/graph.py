"""Checks the graph of processors: its ends and its cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile, Target
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of


def check_graph(pipeline: PipelineFile, problems: Problems) -> None:
    """Report unknown targets, self-loops, cycles, unreachable processors, and a missing sink."""
    entries = pipeline.entries
    targets_known = [_check_targets(entry, pipeline, problems) for entry in entries]
    for entry in entries:
        _check_sources(entry, pipeline, problems)
    arcs = arcs_of(entries)
    on_cycles = _check_cycles(entries, arcs, problems)
    _check_reachable(entries, arcs, on_cycles, problems)
    sinks = {SINK, *pipeline.sinks}
    leads_out = any(
        _needs_no_targets(entry) or sinks.intersection(t.id for t in entry.targets)
        for entry in entries
    )
    all_read = pipeline.is_whole and all(
        entry.targets or _needs_no_targets(entry) for entry in entries
    )
    if all_read and all(targets_known) and not leads_out:
        problems.add(pipeline.root, f'no processor sends to the sink: put "{SINK}" into a `to`')


def arcs_of(entries: Sequence[Entry]) -> dict[str, list[Target]]:
    """Return the arcs between two different, existing processors, by the id of the sender."""
    ids = {entry.id for entry in entries}
    return {
        entry.id: [t for t in entry.targets if t.id in ids and t.id != entry.id]
        for entry in entries
    }


def topological_order(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries so that each arc leads forward; otherwise, file order decides."""
    arcs = arcs_of(entries)
    place = {entry.id: index for index, entry in enumerate(entries)}
    waits_for = _in_degrees(arcs)
    ready = [place[id_] for id_, count in waits_for.items() if count == 0]
    heapify(ready)
    ordered: list[Entry] = []
    while ready:
        entry = entries[heappop(ready)]
        ordered.append(entry)
        for target in arcs[entry.id]:
            waits_for[target.id] -= 1
            if waits_for[target.id] == 0:
                heappush(ready, place[target.id])
    return ordered


def _names_topics(entry: Entry) -> bool:
    return kind_of(entry.spec).names_topics


def _needs_no_targets(entry: Entry) -> bool:
    return _names_topics(entry) or entry.spec.writes_outside


def _in_degrees(arcs: Mapping[str, Sequence[Target]]) -> dict[str, int]:
    counts = dict.fromkeys(arcs, 0)
    for targets in arcs.values():
        for target in targets:
            counts[target.id] += 1
    return counts


def _check_sources(entry: Entry, pipeline: PipelineFile, problems: Problems) -> None:
    """Report names in `from` that are not sources."""
    choices = [SOURCE, *pipeline.sources]
    for source in entry.sources:
        if source.id in choices:
            continue
        sender = next((other for other in pipeline.entries if other.id == source.id), None)
        if sender is not None and _names_topics(sender):
            problems.add(
                source.at,
                f'"{source.id}" is a topology: name the topic that it writes under `sources:`',
            )
        elif sender is not None:
            problems.add(
                source.at, f'"{source.id}" is a processor: name "{entry.id}" in its `to` instead'
            )
        else:
            hint = did_you_mean(source.id, choices)
            problems.add(source.at, f'unknown source "{source.id}"{hint}')


def _check_targets(entry: Entry, pipeline: PipelineFile, problems: Problems) -> bool:
    """Report targets that are wrong; return whether all targets are right."""
    others = [
        other.id for other in pipeline.entries if other.id != entry.id and not _names_topics(other)
    ]
    topologies = {e.id for e in pipeline.entries if _names_topics(e)}
    choices = [SINK, *pipeline.sinks, *others]
    ok = True
    for target in entry.targets:
        if target.id in choices:
            continue
        ok = False
        if target.id == entry.id:
            problems.add(target.at, f'"{entry.id}" sends to itself')
        elif target.id == SOURCE or target.id in pipeline.sources:
            problems.add(target.at, f'"{target.id}" cannot be a target: the pipeline only reads it')
        elif target.id in topologies:
            problems.add(
                target.at,
                f'"{target.id}" is a topology: name a topic that it reads under `sinks:`',
            )
        else:
            hint = did_you_mean(target.id, choices)
            problems.add(target.at, f'unknown target "{target.id}"{hint}')
    return ok


def _check_cycles(
    entries: Sequence[Entry], arcs: Mapping[str, Sequence[Target]], problems: Problems
) -> set[str]:
    """Report cycles until each processor on a cycle has been named; return these processors."""
    named: set[str] = set()
    for entry in entries:
        cycle = [] if entry.id in named else _shortest_cycle(entry.id, arcs)
        if cycle:
            path = " -> ".join([entry.id, *(target.id for target in cycle)])
            problems.add(cycle[-1].at, f"the processors form a cycle: {path}")
            named.update(target.id for target in cycle)
    return named


def _shortest_cycle(start: str, arcs: Mapping[str, Sequence[Target]]) -> list[Target]:
    """Return the arcs of a shortest path from `start` back to it; [] if there is none."""
    reached_by: dict[str, tuple[str, Target]] = {}
    queue = deque([start])
    while queue and start not in reached_by:
        here = queue.popleft()
        for target in arcs[here]:
            if target.id not in reached_by:
                reached_by[target.id] = (here, target)
                queue.append(target.id)
    if start not in reached_by:
        return []
    way: list[Target] = []
    here = start
    while not way or here != start:
        here, target = reached_by[here]
        way.append(target)
    return way[::-1]


def _check_reachable(
    entries: Sequence[Entry],
    arcs: Mapping[str, Sequence[Target]],
    on_cycles: set[str],
    problems: Problems,
) -> None:
    """Report processors that no source leads to; those without inputs read the default source."""
    read = {entry.id for entry in entries if entry.sources}
    queue = [id_ for id_, count in _in_degrees(arcs).items() if count == 0 or id_ in read]
    reached = set(queue)
    while queue:
        for target in arcs[queue.pop()]:
            if target.id not in reached:
                reached.add(target.id)
                queue.append(target.id)
    for entry in entries:
        if entry.id not in reached and entry.id not in on_cycles:
            problems.add(entry.at, f'"{entry.id}" cannot be reached from the source')

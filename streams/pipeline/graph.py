"""Checks the graph of processors: its ends, its cycles, and queries of the results of queries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE
from kafka_pipeline.common.pipelines.specs import ForwardSpec, SparkSpec, SqlSpec
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile, Target
from kafka_pipeline.streams.pipeline.kinds.registry import kind_of


def check_graph(pipeline: PipelineFile, problems: Problems) -> None:
    """Report unknown targets, self-loops, cycles, unreachable processors, and a missing sink.

    Also reports queries that aggregate the updates of other queries, as if they were records.
    """
    entries = pipeline.entries
    targets_known = [_check_targets(entry, pipeline, problems) for entry in entries]
    for entry in entries:
        _check_sources(entry, pipeline, problems)
    arcs = arcs_of(entries)
    on_cycles = _check_cycles(entries, arcs, problems)
    _check_reachable(entries, arcs, on_cycles, problems)
    sinks = {SINK, *pipeline.sinks}
    leads_out = any(
        _names_topics(entry) or sinks.intersection(t.id for t in entry.targets) for entry in entries
    )
    all_read = pipeline.is_whole and all(entry.targets or _names_topics(entry) for entry in entries)
    if all_read and all(targets_known) and not leads_out:
        problems.add(pipeline.root, f'no processor sends to the sink: put "{SINK}" into a `to`')
    _check_updates(pipeline, problems)


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


def _check_updates(file: PipelineFile, problems: Problems) -> None:
    """Report each query with GROUP BY that reads the updates of another one.

    Updates pass through `forward`, and through queries and functions without groups. The output of
    other user code is unknown here, and accepted.
    """
    for entry in file.entries:
        spec = _with_groups(entry)
        if spec is None or spec.grouping is None or spec.grouping.emit != "on_update":
            continue
        if entry.part_of:
            _check_stage(entry, spec, file, problems)
        for follower, after, is_changed in _followers(entry, file):
            if not _may_follow(spec, after, is_changed):
                problems.add(
                    follower.at,
                    f'"{follower.id}": its records are updates of "{entry.id}", and each update of '
                    "a group would count as one more record. Let "
                    f'"{entry.id}" give each result once, by a window and emit: on_close, or '
                    "aggregate its groups as a table of the DSL: Table.group_by takes the former "
                    "result of a group out of an aggregate",
                )


def _check_stage(entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
    """Report stages that take each update of another stage as a row of its own.

    Between processors, that may be wanted; in one query, it would be another result than that of
    the query.
    """
    from kafka_pipeline.streams.sql.update_text import read_updates

    if not read_updates(spec.query, [*spec.tables, *spec.topic_tables]).replaces:
        return
    for reader in _readers(entry, file):
        after = reader.spec
        assert isinstance(after, SqlSpec), "only stages read stages"
        lookups = [*after.tables, *after.topic_tables]
        if after.grouping is None or not read_updates(after.query, lookups).replaces:
            problems.add(
                entry.at,
                f'"{reader.id}" would take each update of "{entry.id}" as one more row: let '
                f'"{entry.id}" give each result once, by a window and emit: on_close',
            )


def _with_groups(entry: Entry) -> SqlSpec | None:
    """Return the query of an entry if it groups its records."""
    spec = entry.spec
    return spec if isinstance(spec, SqlSpec) and spec.grouping is not None else None


def _may_follow(before: SqlSpec, after: SqlSpec, is_changed: bool) -> bool:
    # sqlglot takes a quarter of a second to load.
    from kafka_pipeline.streams.sql.update_text import read_updates

    first, second = (
        read_updates(spec.query, [*spec.tables, *spec.topic_tables]) for spec in (before, after)
    )
    return second.may_follow(replace(first, gives=None) if is_changed else first)


def _followers(entry: Entry, file: PipelineFile) -> Iterator[tuple[Entry, SqlSpec, bool]]:
    """Yield each next query with groups once: its entry, its spec, and whether results changed.

    Results may change in queries and functions in between. Readers of a sink's topic count too.
    """
    seen = {entry.id}
    waiting = [(entry, False)]
    while waiting:
        here, is_changed = waiting.pop()
        for reader in _readers(here, file):
            if reader.id in seen:
                continue
            seen.add(reader.id)
            query = _with_groups(reader)
            if query is not None:
                yield reader, query, is_changed
            elif isinstance(reader.spec, ForwardSpec):
                waiting.append((reader, is_changed))
            elif isinstance(reader.spec, SparkSpec) and reader.spec.grouping is None:
                waiting.append((reader, True))


def _readers(entry: Entry, file: PipelineFile) -> list[Entry]:
    to = {target.id for target in entry.targets}
    topics = {file.sinks[name] for name in to & file.sinks.keys()}
    return [
        other
        for other in file.entries
        if other.id in to or any(file.sources.get(each.id) in topics for each in other.sources)
    ]

"""Checks that no query aggregates the updates of another one, as if they were records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.specs import ForwardSpec, SparkSpec, SqlSpec
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile


def check_updates(file: PipelineFile, problems: Problems) -> None:
    """Report each query with GROUP BY whose input has the updates of another one.

    Updates pass through `forward`, and through queries and functions without groups. What other
    classes and functions make of them is not known here.
    """
    for entry in file.entries:
        spec = _with_groups(entry)
        if spec is None or spec.grouping is None or spec.grouping.emit != "on_update":
            continue
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
    """Yield the next entries with groups, each once, with their queries.

    With each comes whether what is in between may have changed the results. They also come to those
    who read the topic of a sink.
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

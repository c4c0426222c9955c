"""Says which keys of a query hold for which of its stages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.pipelines.lookup_tables import TopicTableSpec
from kafka_pipeline.streams.pipeline.kinds.group_keys import (
    CLOSE_AFTER_IDLE,
    EMIT,
    GRACE,
    GROUP_KEYS,
    LATE_TO,
    MAX_COLLECTED,
)
from kafka_pipeline.streams.pipeline.kinds.kind import MAX_TASK_IDLE
from kafka_pipeline.streams.pipeline.kinds.regular_joins import TTL
from kafka_pipeline.streams.pipeline.kinds.tables import TablesRead
from kafka_pipeline.streams.sql.query_text import read_groups, read_join, read_over, tables_of
from kafka_pipeline.streams.sql.spec import QueryError
from kafka_pipeline.streams.sql.stage import Stage

_KEYS = frozenset(key.name for key in (*GROUP_KEYS, TTL, MAX_TASK_IDLE))


def fields_of_stages(
    fields: Fields, stages: Sequence[Stage], tables: TablesRead, reading: str
) -> list[tuple[Fields, TablesRead]]:
    """Return the fields and the lookup tables that hold for each stage of a query.

    `emit`, `grace` and `close_after_idle` hold for the stages with windows, and `grace` for joins
    with bounds of time and `OVER (…)`, too; `ttl` holds for all joins, as bounds do not count where
    results change. `late_to` takes the records of inputs, so it holds for the stages that read no
    others. A key that no stage has a use for is left to the last one, which reports it, unless a
    stage has a mistake. Stages read each other as `<reading>.<name>`.
    """
    if len(stages) == 1:
        return [(fields, tables)]
    inner = {f"{reading}.{stage.name}".lower() for stage in stages}
    read = [tables_of(stage.query) for stage in stages]
    found = [
        _keys_of(stage.query, tables, names, reads_inputs=not inner & names)
        for stage, names in zip(stages, read, strict=True)
    ]
    used = [keys or frozenset() for keys in found]
    if None not in found:
        used[-1] |= _KEYS - frozenset().union(*used)
    unread = {name.lower() for name in tables.names} - frozenset().union(*read)
    read[-1] |= unread
    return [
        (fields.without(_KEYS - keys), _only(tables, names))
        for keys, names in zip(used, read, strict=True)
    ]


def _keys_of(
    query: str, tables: TablesRead, read: Collection[str], *, reads_inputs: bool
) -> frozenset[str] | None:
    """Return the keys that a stage has a use for; `None` for one with a mistake."""
    try:
        groups, join = read_groups(query, tables.names), read_join(query, tables.names)
        over = read_over(query, tables.names)
    except QueryError:
        return None  # it is read once more, and then reported
    found = set()
    has_windows = groups is not None and groups.window is not None
    if groups is not None:
        found |= {MAX_COLLECTED.name}
    if has_windows:
        found |= {EMIT.name, CLOSE_AFTER_IDLE.name}
    is_regular = join is not None and join.regular is not None
    found |= {TTL.name} if join is not None else set()
    if has_windows or join is not None or over is not None:
        found |= set() if is_regular else {GRACE.name}
        found |= {LATE_TO.name} if reads_inputs else set()
    if (
        has_windows
        or join is not None
        or over is not None
        or any(map(_is_keyed, _only(tables, read).of_topics.values()))
    ):
        found |= {MAX_TASK_IDLE.name}
    return frozenset(found)


def _is_keyed(table: TopicTableSpec) -> bool:
    return not table.is_global


def _only(tables: TablesRead, read: Collection[str]) -> TablesRead:
    """Return the tables that a query reads."""
    return TablesRead(
        {name: table for name, table in tables.by_spark.items() if name.lower() in read},
        {name: table for name, table in tables.of_topics.items() if name.lower() in read},
        tables.names,
    )

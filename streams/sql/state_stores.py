"""The stores of queries: those of the DSL, with groups, buffers and values of tables as bytes."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.common.pipelines.lookup_tables import CHANGES_STORE, TopicTableSpec
from kafka_pipeline.common.pipelines.specs import (
    SHAPE_STORE,
    CalendarSpec,
    GroupingSpec,
    JoinSpec,
    OverSpec,
    RegularJoinSpec,
    SessionSpec,
    WindowSpec,
)
from kafka_pipeline.common.pipelines.spreading import Rule
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.table_values import table_store
from kafka_pipeline.streams.dsl.waiting import waiting_store
from kafka_pipeline.streams.dsl.windows import (
    CalendarWindows,
    SessionWindows,
    TimeWindows,
    calendar,
)
from kafka_pipeline.streams.event_time.step_time import times_store
from kafka_pipeline.streams.kept_changes import KEPT
from kafka_pipeline.streams.stores import StoreBuilder, key_value, session, window

GROUPS = "groups"
"""The store of groups without a window."""

WINDOWS = "windows"
"""The store of groups with a window; its keys are the other grouping columns."""

DISTINCT = "distinct"
"""The store of the values that functions with DISTINCT have seen; see `KeptDistinct`."""

VALUES = "values"
"""The store of the values of the rows of a changelog; see `KeptValues`."""

SESSIONS = "sessions"
"""The store of groups with sessions; its keys are the other grouping columns."""


CHANGELOG = "changelog"
"""The store of the newest record of each key, of a query over a changelog."""

JOIN = "join"
"""The name under which the time of a join is kept."""

UNMATCHED = "unmatched"
"""The store of the results of rows that have no partner yet."""

ROWS = ("left", "right")
"""The stores of the rows of both sides."""

OVER = "over"
"""The store of the rows of a query with `OVER (…)`, by the columns of PARTITION BY and by time."""

FORMER = "former"
"""The store of the last rows that had their results, for frames of a number of rows."""

_FOREVER_MS = 2**61
"""A retention that is longer than any time in milliseconds since 1970."""


def windows_of(grouping: GroupingSpec) -> TimeWindows | CalendarWindows:
    """Return the windows of a grouping that has some.

    Those of a `WindowSpec` are moved by its `start_ms`: see `last_start`.
    """
    match grouping.window:
        case CalendarSpec(period=period, zone=zone):
            return calendar(period, tz=zone, grace_ms=grouping.grace_ms)
        case WindowSpec(size_ms=size_ms, slide_ms=slide_ms):
            return TimeWindows(size_ms, slide_ms, grouping.grace_ms)
    raise AssertionError("it has windows")


def last_start(grouping: GroupingSpec, windows: TimeWindows | CalendarWindows, time: int) -> int:
    """Return the start of the last window that has begun by a time; it may be before 1970.

    `windows` are the `windows_of` the grouping.
    """
    match grouping.window:
        case WindowSpec(slide_ms=slide_ms, start_ms=start_ms):
            return (time - start_ms) // slide_ms * slide_ms + start_ms
    return windows.starts(time)[-1]


def sessions_of(grouping: GroupingSpec) -> SessionWindows:
    """Return the sessions of a grouping that has some."""
    assert isinstance(grouping.window, SessionSpec)
    return SessionWindows(grouping.window.gap_ms, grouping.grace_ms)


def state_stores(grouping: GroupingSpec) -> tuple[StoreBuilder[Any, Any], ...]:
    """Return the definitions of the stores of a query with GROUP BY."""
    if grouping.stage == "rows":
        return ()
    shape = shape_store()
    # What the internal topic brings has the key of the group. Otherwise it is one of its columns.
    rule: Rule = "key" if grouping.stage == "groups" else "columns"
    closes = grouping.emit == "on_close"
    if grouping.window is None:
        groups = key_value(GROUPS, serdes.bytes, serdes.bytes).spread(rule)
        names = {DISTINCT: grouping.keeps_distinct, VALUES: grouping.keeps_values}
        values = [
            key_value(name, serdes.bytes, serdes.bytes).spread(rule, has_length=True)
            for name, is_kept in names.items()
            if is_kept
        ]
        return (groups, *values, shape)
    if isinstance(grouping.window, SessionSpec):
        sessions = sessions_of(grouping)
        # The last moment of a session belongs to it, and its store forgets what is exactly as old.
        retention_ms = sessions.gap_ms + sessions.grace_ms + 1
        found = session(SESSIONS, serdes.bytes, serdes.bytes, retention_ms=retention_ms)
        # A record may be next to a session that has closed.
        found = found.with_options(lingering=sessions.gap_ms)
        found = found.spread(rule, closes_ms=retention_ms if closes else None)
        return (found, times_store(SESSIONS), shape)
    windows = windows_of(grouping)
    kept, distinct = (
        window(
            name,
            serdes.bytes,
            serdes.bytes,
            retention_ms=windows.retention_ms(closes=closes),
            window_size_ms=windows.longest_ms,
        )
        for name in (WINDOWS, DISTINCT)
    )
    distinct = distinct.spread(rule, has_length=True)
    if isinstance(windows, TimeWindows):
        kept = kept.spread(rule, closes_ms=windows.delay_ms if closes else None)
    else:
        kept = kept.with_options(calendar=windows.calendar).spread(
            rule,
            closes_ms=windows.grace_ms if closes else None,
            calendar=(windows.calendar.period, windows.calendar.zone),
        )
    return (kept, *([distinct] if grouping.keeps_distinct else []), times_store(WINDOWS), shape)


def shape_store() -> StoreBuilder[str, str]:
    """Return the definition of the store that says what the others are kept for.

    It has one record, which every start reads as a whole.
    """
    return key_value(SHAPE_STORE, serdes.string, serdes.string, persistent=False).spread("copy")


def topic_store(name: str, table: TopicTableSpec) -> StoreBuilder[Any, Any]:
    """Return the definition of the store of a table that follows a topic."""
    return table_store(table.store_of(name), serdes.bytes, serdes.bytes, table.history_ms)


def over_stores(over: OverSpec) -> tuple[StoreBuilder[Any, Any], ...]:
    """Return the definitions of the stores of a query with `OVER (…)`.

    Rows are kept until they are due, and then as long as a frame by time may reach them.
    """
    if over.stage == "rows":
        return ()
    rule: Rule = "key" if over.stage == "frames" else "columns"
    rows = window(
        OVER,
        serdes.bytes,
        serdes.bytes,
        # The first row that is not late is as old as the grace period, and its frame has an end.
        retention_ms=over.range_ms + over.grace_ms + 2,
        window_size_ms=1,
        retain_duplicates=True,
    ).spread(rule, marks_given=True)
    former = [key_value(FORMER, serdes.bytes, serdes.bytes).spread(rule)] * over.counts_rows
    return (rows, *former, times_store(OVER), shape_store())


def changelog_store(name: str = CHANGELOG) -> StoreBuilder[Any, Any]:
    """Return the definition of the store of the newest record of each key of a changelog."""
    return table_store(name, serdes.bytes, serdes.bytes)


def changelogs_of(join: JoinSpec) -> list[str]:
    """Return the names of the stores of the newest records of a join's sides that change.

    They are in the order of the sides. An input that is joined with itself has one.
    """
    names = [f"{CHANGELOG}-{side}" for side in join.changing]
    return names[:1] if join.left == join.right else names


def changes_store(table: str = "") -> StoreBuilder[Any, Any]:
    """Return the definition of the store of what is kept of the keys of change events.

    They are those of a `table` that follows a topic, or of the input of a query.
    """
    name = TopicTableSpec.changes_name(table) if table else CHANGES_STORE
    return key_value(name, serdes.bytes, KEPT)


def reach_of(join: JoinSpec, side: int) -> tuple[int, int]:
    """Return how much older and younger the partner of a side's record may be, in ms."""
    return (join.before_ms, join.after_ms) if side == 0 else (join.after_ms, join.before_ms)


def join_stores(join: JoinSpec) -> tuple[StoreBuilder[Any, Any], ...]:
    """Return the definitions of the stores.

    A row is kept as long as a partner may come that is not late.
    """
    if join.regular is not None:
        return _regular_join_stores(join, join.regular)
    sides = [
        window(
            name,
            serdes.bytes,
            serdes.bytes,
            retention_ms=max(reach_of(join, side)[1], 0) + join.grace_ms + 1,
            window_size_ms=1,
            retain_duplicates=True,
        )
        .spread("numbered")
        .of_windows("")
        for side, name in enumerate(ROWS)
    ]
    waiting = [waiting_store(UNMATCHED, 0).spread("unmatched")] if join.keeps else []
    return (*sides, *waiting, times_store(JOIN).spread("numbered_times"), shape_store())


def _regular_join_stores(
    join: JoinSpec, regular: RegularJoinSpec
) -> tuple[StoreBuilder[Any, Any], ...]:
    changelogs = [changelog_store(name) for name in changelogs_of(join)]
    if regular.stage == "rows":
        return (*changelogs,)
    retention_ms = _FOREVER_MS if regular.kept_ms is None else regular.kept_ms + 1
    sides = [
        window(
            name,
            serdes.bytes,
            serdes.bytes,
            retention_ms=retention_ms,
            window_size_ms=1,
            retain_duplicates=True,
        )
        .spread("key", has_length=regular.also_by_columns)
        .of_windows("")
        for name in ROWS
    ]
    times = () if regular.ttl_ms is None else (times_store(JOIN),)
    front = changelogs if regular.stage == "whole" else ()
    return (*front, *sides, *times, shape_store())

"""The keys of pipeline.yaml that say how a query groups records, and how its groups are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from kafka_pipeline.common.config.fields import Fields
from kafka_pipeline.common.config.keys import (
    Choice,
    ConfigKey,
    Duration,
    Flag,
    Free,
    Number,
    Schema,
    Text,
    map_schema,
    names,
)
from kafka_pipeline.common.config.yaml_positions import Problems
from kafka_pipeline.common.pipelines.processors import SINK
from kafka_pipeline.common.pipelines.specs import (
    DEFAULT_MAX_COLLECTED,
    EmitTime,
    GroupingSpec,
    SessionSpec,
    WindowSpec,
)
from kafka_pipeline.common.suggest import did_you_mean
from kafka_pipeline.streams.pipeline.kinds.entry import Entry, PipelineFile
from kafka_pipeline.streams.pipeline.kinds.kind import NO_LIMIT
from kafka_pipeline.streams.sql.query_text import read_groups
from kafka_pipeline.streams.sql.spec import GroupBy, QueryError

DEFAULT_GRACE_MS = 86_400_000
"""For results on update. They are not delayed by it, so a late record is better counted."""

EMIT: Choice[EmitTime] = Choice(
    name="emit",
    doc="when a query that groups records gives results: for each group that changed, or once for "
    "each window, when it closes",
    choices=get_args(EmitTime),
    default="on_update",
)
GRACE = Duration(
    name="grace",
    doc="the grace period: how long after its end a window accepts records, such as `10 min`, or "
    "how far a record may be behind the others in a join with bounds of time or with `OVER (…)`; "
    "required with `on_close`, in such outer joins and with `OVER (…)`, otherwise `1 d`",
    about='how long after its end a window takes records, such as "10 min"',
)
LATE_TO = Text(
    name="late_to",
    doc="a name of `sinks:`, for records that come too late; otherwise, they are only counted",
    about="a name of sinks",
    default="",
)
CLOSE_AFTER_IDLE = Duration(
    name="close_after_idle",
    doc="with `on_close`: all windows close if no record comes for that long by the wall clock, "
    "such as `30 s`; otherwise, they wait for records",
    about='closes windows if nothing comes for that long, such as "30 s"',
    low=1,
)
MAX_COLLECTED = Number(
    name="max_collected",
    doc="how many values a group may have in a `collect_list` or in a `collect_set`, and in "
    "sessions and functions of DataFrames for an aggregate with `DISTINCT`, or rows that `rank()` "
    "or `dense_rank()` keeps; the record that "
    "exceeds it is rejected. A limit of `row_number()` may not be larger",
    low=1,
    high=NO_LIMIT,
    default=DEFAULT_MAX_COLLECTED,
)
_WINDOW_KEYS = (EMIT, GRACE, LATE_TO)
GROUP_KEYS = (*_WINDOW_KEYS, CLOSE_AFTER_IDLE, MAX_COLLECTED)
GROUP_RULES: Sequence[Schema] = (
    {
        "if": {"properties": {EMIT.name: {"const": "on_close"}}, "required": [EMIT.name]},
        "then": {"required": [GRACE.name]},
    },
)

_KEY = Flag(
    name="key",
    doc="whether the key of the records is one of the grouping columns; otherwise, records of a "
    "group meet behind an internal topic",
    default=False,
)
_WINDOW = Duration(name="window", doc="the size of windows, such as `1 h`", low=1)
_SLIDE = Duration(
    name="slide", doc="the time from one window to the next; without it, `window`", low=1
)
_OFFSET = Duration(
    name="offset", doc="how long after midnight (UTC) windows start, such as `5 min`"
)
_SESSION = Duration(
    name="session", doc="in place of `window`: the gap that ends a session, such as `5 min`", low=1
)
_TIMES = (_WINDOW, _SLIDE, _OFFSET, _SESSION)
_PARTS: tuple[ConfigKey, ...] = (_KEY, *_TIMES)
GROUP_BY = Free(
    name="group_by",
    doc="what the function groups records by, if it does; `{}` without a window and without `key`",
    of={
        **map_schema(_PARTS),
        "dependencies": {
            _SLIDE.name: [_WINDOW.name],
            _OFFSET.name: [_WINDOW.name],
            _SESSION.name: {"not": {"required": [_WINDOW.name]}},
        },
    },
    says="map",
    parts=_PARTS,
)


@dataclass(frozen=True, slots=True)
class _Settings:
    """How groups are to be kept."""

    emit: EmitTime
    grace_ms: int | None
    late_to: str
    max_collected: int
    close_after_idle_ms: int | None


@dataclass(frozen=True, slots=True)
class _Needs:
    """What groups and windows need, in messages."""

    groups: str
    windows: str


_IN_TEXT = _Needs("a query with GROUP BY", "a query with window(…) in GROUP BY")
_IN_PARTITIONS = _Needs("row_number() or rank()", "a query with window(…) in PARTITION BY")
_IN_KEYS = _Needs("a function with group_by", "a function with window or session in group_by")


def grouping_of_query(
    fields: Fields, query: str, tables: Collection[str], problems: Problems
) -> GroupingSpec | None:
    """Return how the groups of a query with these lookup tables are kept, or None without any."""
    settings = _settings(fields)
    try:
        groups = read_groups(query, tables)
    except QueryError as error:
        problems.add(fields.at("query"), str(error))
        return None
    needs = _IN_PARTITIONS if groups is not None and groups.is_numbered else _IN_TEXT
    return _grouping(groups, settings, needs, fields, problems)


def grouping_of_function(fields: Fields, problems: Problems) -> GroupingSpec | None:
    """Return how the groups of a function are kept, or None without any."""
    settings = _settings(fields)
    groups = None
    if fields.get(GROUP_BY.name) is not None:
        groups = _group_by(fields, problems)
        if groups is None:
            return None
    return _grouping(groups, settings, _IN_KEYS, fields, problems)


def _settings(fields: Fields) -> _Settings:
    return _Settings(
        fields.choice(EMIT),
        fields.duration(GRACE),
        fields.text(LATE_TO),
        fields.number(MAX_COLLECTED),
        fields.duration(CLOSE_AFTER_IDLE),
    )


def _grouping(
    groups: GroupBy | None, settings: _Settings, needs: _Needs, fields: Fields, problems: Problems
) -> GroupingSpec | None:
    emit, grace_ms = settings.emit, settings.grace_ms
    missing = needs.groups if groups is None else "" if groups.window else needs.windows
    for key in GROUP_KEYS if groups is None else _WINDOW_KEYS:
        if missing and fields.get(key.name) is not None and (groups is None or _is_set(key, emit)):
            problems.add(fields.at(key.name), f"{key.name} belongs to {missing}: leave it out")
    if groups is None:
        return None
    closes = emit == "on_close" and groups.window is not None
    if fields.get(CLOSE_AFTER_IDLE.name) is not None and not closes:
        problems.add(
            fields.at(CLOSE_AFTER_IDLE.name),
            f"close_after_idle belongs to {needs.windows} and emit: on_close: leave it out",
        )
    if emit == "on_close" and groups.window and grace_ms is None:
        fields.require(replace(GRACE, required=True))
    return GroupingSpec(
        window=groups.window,
        emit=emit,
        grace_ms=(DEFAULT_GRACE_MS if grace_ms is None else grace_ms) if groups.window else 0,
        late_to=(settings.late_to or None) if groups.window else None,
        max_collected=settings.max_collected,
        close_after_idle_ms=settings.close_after_idle_ms if closes else None,
        stage="whole" if groups.has_key else "groups",
        keeps_distinct=groups.has_distinct and not isinstance(groups.window, SessionSpec),
    )


def _is_set(key: ConfigKey, emit: EmitTime) -> bool:
    """Whether a key says something that needs a window."""
    return key is not EMIT or emit == "on_close"


def _group_by(fields: Fields, problems: Problems) -> GroupBy | None:
    """Return what `group_by` says; None if its times are wrong."""
    at = fields.at(GROUP_BY.name)
    parts = Fields(fields.pairs(GROUP_BY), problems, at=at, known=names(_PARTS))
    if problems.found_at(at):
        return None
    has_key = parts.boolean(_KEY)
    times = {key: parts.duration(key) for key in _TIMES if parts.get(key.name) is not None}
    size, slide, offset = (times.get(key) for key in (_WINDOW, _SLIDE, _OFFSET))
    wrong = {key: "" for key, time in times.items() if time is None}
    if _WINDOW not in times:
        wrong |= {
            key: f"{key.name} needs window: add it, or leave {key.name} out"
            for key in (_SLIDE, _OFFSET)
            if key in times
        }
    elif _SESSION in times:
        wrong[_SESSION] = "group_by has window or session, not both"
    if size and slide and slide > size:
        wrong[_SLIDE] = "slide must not be above window"
    elif size and offset and offset >= (slide or size):
        wrong[_OFFSET] = f"offset must be below {'slide' if slide else 'window'}"
    for key, message in wrong.items():
        if message:
            problems.add(parts.at(key.name), message)
    if wrong:
        return None
    if gap := times.get(_SESSION):
        return GroupBy(SessionSpec(gap_ms=gap), has_key)
    if size is None:
        return GroupBy(None, has_key)
    window = WindowSpec(size_ms=size, slide_ms=slide or size, start_ms=offset or 0)
    return GroupBy(window, has_key)


def check_late(entry: Entry, late_to: str | None, file: PipelineFile, problems: Problems) -> None:
    """Report a `late_to` that is not a sink, or that gets the results too."""
    if late_to is None:
        return
    sinks = (SINK, *file.sinks)
    if late_to not in sinks:
        hint = did_you_mean(late_to, sinks)
        problems.add(entry.at, f'"{entry.id}": late_to names no sink, got "{late_to}"{hint}')
        return
    require_sink_of_its_own(entry, late_to, problems)


def require_sink_of_its_own(entry: Entry, late_to: str, problems: Problems) -> None:
    """Report a sink for late records that gets the results of the entry too."""
    if late_to in {target.id for target in entry.targets}:
        problems.add(
            entry.at,
            f'"{entry.id}": late_to is "{late_to}", where the results go: give late records a sink '
            "of their own",
        )

"""What pipeline.yaml says about a query with GROUP BY, and the processors and stores it becomes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import get_args

from common.fields import Fields
from common.keys import Choice, Number, Schema, Text
from common.names import name_problem
from common.processors import SINK, LoggedStore, PipelineProcessor
from common.specs import DEFAULT_MAX_COLLECTED, GROUPS_TOPIC, EmitTime, GroupingSpec, SqlSpec
from common.suggest import did_you_mean
from common.topic_names import TopicNames
from common.yaml_positions import Problems
from streams.pipeline.kinds.entry import Entry, PipelineFile
from streams.pipeline.kinds.kind import NO_LIMIT
from streams.sql.query_text import read_groups
from streams.sql.spec import QueryError

DEFAULT_GRACE_MS = 86_400_000
"""For results on update. They are not delayed by it, so a late record is better counted."""

_TIME = re.compile(r"(0|[1-9][0-9]*)\s*(s|sec|min|h|d)")
_MILLISECONDS = {"s": 1000, "sec": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

EMIT: Choice[EmitTime] = Choice(
    name="emit",
    doc="when a query with GROUP BY gives results: for each group that changed, or once for each "
    "window, when it closes",
    choices=get_args(EmitTime),
    default="on_update",
)
GRACE = Text(
    name="grace",
    doc="how long after its end a window takes records, such as `10 min`, or how far a record may "
    "be behind the others in a join of two inputs; required with `on_close` and in outer joins, "
    "otherwise `1 d`",
    about='how long after its end a window takes records, such as "10 min"',
    default="",
    pattern=rf"^{_TIME.pattern}$",
)
LATE_TO = Text(
    name="late_to",
    doc="a name of `sinks:`, for records that come too late; otherwise, they are only counted",
    about="a name of sinks",
    default="",
)
MAX_COLLECTED = Number(
    name="max_collected",
    doc="how many values a group may have in a `collect_list`, in a `collect_set`, or for an "
    "aggregate with `DISTINCT`; the record that exceeds it is rejected",
    low=1,
    high=NO_LIMIT,
    default=DEFAULT_MAX_COLLECTED,
)
_WINDOW_KEYS = (EMIT, GRACE, LATE_TO)
GROUP_KEYS = (*_WINDOW_KEYS, MAX_COLLECTED)
GROUP_RULES: Sequence[Schema] = (
    {
        "if": {"properties": {EMIT.name: {"const": "on_close"}}, "required": [EMIT.name]},
        "then": {"required": [GRACE.name]},
    },
)


def read_grouping(
    fields: Fields, query: str, tables: Collection[str], problems: Problems
) -> GroupingSpec | None:
    """Return how the groups of a query with these lookup tables are kept, or None without any."""
    emit, late_to = fields.choice(EMIT), fields.text(LATE_TO)
    grace_ms = read_grace(fields, problems)
    try:
        groups = read_groups(query, tables)
    except QueryError as error:
        problems.add(fields.at("query"), str(error))
        return None
    max_collected = fields.number(MAX_COLLECTED)
    missing = "GROUP BY" if groups is None else "" if groups.window else "window(…) in GROUP BY"
    for key in GROUP_KEYS if groups is None else _WINDOW_KEYS:
        if missing and fields.get(key.name) is not None and (groups is None or _is_set(key, emit)):
            problems.add(
                fields.at(key.name), f"{key.name} belongs to a query with {missing}: leave it out"
            )
    if groups is None:
        return None
    if emit == "on_close" and groups.window and grace_ms is None:
        fields.require(replace(GRACE, required=True))
    return GroupingSpec(
        window=groups.window,
        emit=emit,
        grace_ms=(DEFAULT_GRACE_MS if grace_ms is None else grace_ms) if groups.window else 0,
        late_to=(late_to or None) if groups.window else None,
        max_collected=max_collected,
        stage="whole" if groups.has_key else "groups",
    )


def check_late(entry: Entry, spec: SqlSpec, file: PipelineFile, problems: Problems) -> None:
    """Report a `late_to` that is not a sink, or that gets the results too."""
    kept = spec.join or spec.grouping
    if kept is None or (late_to := kept.late_to) is None:
        return
    sinks = (SINK, *file.sinks)
    if late_to not in sinks:
        hint = did_you_mean(late_to, sinks)
        problems.add(entry.at, f'"{entry.id}": late_to names no sink, got "{late_to}"{hint}')
    elif late_to in {target.id for target in entry.targets}:
        problems.add(
            entry.at,
            f'"{entry.id}": late_to is "{late_to}", where the results go: give late records a sink '
            "of their own",
        )


def with_late(
    processor: PipelineProcessor, late_to: str | None, file: PipelineFile
) -> PipelineProcessor:
    """Return a processor that also sends to `late_to`, if it is given."""
    if late_to is None:
        return processor
    topics = {name: file.topics[name] for name in (late_to,) if name in file.topics}
    return replace(processor, to=(*processor.to, late_to), topics={**processor.topics, **topics})


def with_groups(
    processor: PipelineProcessor,
    grouping: GroupingSpec,
    file: PipelineFile,
    names: TopicNames,
    front_stores: tuple[LoggedStore, ...],
    problems: Problems,
    entry: Entry,
) -> list[PipelineProcessor]:
    """Return the processors of a query: one, or two with an internal topic in between.

    The first one of two has the `front_stores`, whose rows it looks up by the keys of records.
    """
    if grouping.stage == "whole":
        return [with_late(processor, grouping.late_to, file)]
    late = () if grouping.late_to is None else (grouping.late_to,)
    late_topics = {name: file.topics[name] for name in late if name in file.topics}
    assert isinstance(processor.spec, SqlSpec)
    between = {GROUPS_TOPIC: names.internal(processor.id, GROUPS_TOPIC)}
    id_ = f"{processor.id}-rows"
    if wrong := name_problem(id_):
        problems.add(entry.at, f'the id "{id_}" of the processor in front of the groups {wrong}')
    senders = {other.id for other in file.entries}
    arcs = {name: names.arc(name, processor.id) for name in processor.from_ if name in senders}
    read = {name: topic for name, topic in processor.topics.items() if name in processor.from_}
    front = replace(
        processor,
        id=id_,
        spec=replace(processor.spec, grouping=replace(grouping, stage="rows")),
        to=(GROUPS_TOPIC, *late),
        topics={**read, **arcs, **late_topics, **between},
        stores=front_stores,
        meetings=None if front_stores else (),
    )
    written = {name: topic for name, topic in processor.topics.items() if name in processor.to}
    back = replace(processor, from_=(GROUPS_TOPIC,), topics={**written, **between}, sources={})
    return [front, back]


def _is_set(key: object, emit: EmitTime) -> bool:
    """Whether a key says something that needs a window."""
    return key is not EMIT or emit == "on_close"


def read_grace(fields: Fields, problems: Problems) -> int | None:
    """Return the grace period in ms, or None if none is given."""
    grace = fields.text(GRACE)
    if not grace:
        return None
    found = _TIME.fullmatch(grace)
    if found is None:
        problems.add(
            fields.at(GRACE.name),
            f'grace must be a time such as "30 s", "10 min" or "1 h", got "{grace}"',
        )
        return 0
    return int(found[1]) * _MILLISECONDS[found[2]]

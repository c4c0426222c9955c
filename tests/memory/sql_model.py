"""The results that queries must have, from each source partition alone; see `event_time_model`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kafka_pipeline.common.kafka.clients import Partition
from tests.memory.event_time_model import (
    FAR_MS,
    Event,
    Expected,
    Input,
    Result,
    closed_windows,
    in_time,
    joined,
    read,
    windowed,
)
from tests.memory.sql_plans import BEST, DROPPED, TTL_JOINS, SqlPlan
from tests.user_code.timed_windows import ALONE, ROWS, Join, Level

Inputs = Mapping[Partition, Sequence[Input]]


def expected_of_queries(
    plan: SqlPlan, inputs: Inputs, end_ms: int, *, may_miss: bool = False
) -> Expected:
    """Return the results once all sources are at `end_ms`; of those that change, the last ones."""
    found = Expected(may_miss=may_miss)
    sides = [_source(plan, topic, inputs) for topic in plan.topics]
    events = sides[0]
    if plan.join is not None:
        events = _pairs(plan.join, sides[0], sides[1], end_ms, found)
    for query in plan.queries:
        events = list(_given(query.level, events, end_ms, found))
    if plan.updates:
        level = Level("tumbling", plan.updates, plan.updates, 0, 3, 0)
        events = list(windowed(level, events, FAR_MS, found))
    if plan.totals:
        events = _totals(events)
    found.results = Counter(
        Result(b"%d" % each.key, each.ids, 0 if plan.changes else each.time_ms) for each in events
    )
    return found


def _source(plan: SqlPlan, topic: str, inputs: Inputs) -> list[Event]:
    events = read(plan, topic, inputs)
    if plan.table:
        events = _looked_up(plan.table, topic, inputs)
    if "filter" in plan.before:
        events = [each for each in events if int(each.ids[0]) % DROPPED]
    return events


def _looked_up(kind: str, topic: str, inputs: Inputs) -> list[Event]:
    """Return the records of a stream, each with the row that it finds."""
    events = []
    for place, records in inputs.items():
        if place[0] != topic:
            continue
        rows = [each for each in inputs.get((ROWS, place[1]), ()) if not each.is_rejected]
        clock, table, at = -1, dict[int, Input](), 0
        for each in records:
            if each.is_rejected:
                continue
            clock = max(clock, each.time_ms)
            # The one whose time is earlier comes first; of equal ones, the row.
            while at < len(rows) and rows[at].time_ms <= each.time_ms:
                table[rows[at].key] = rows[at]
                at += 1
            row = table.get(each.key)
            if kind == "history":
                valid = [r for r in rows[:at] if r.key == each.key and r.time_ms <= each.time_ms]
                # Of those of one time, the last one counts.
                row = max(reversed(valid), key=lambda row: row.time_ms, default=None)
            ids = b"%b+%b" % (each.value, ALONE if row is None else row.value)
            events.append(Event(each.key, (ids,), each.time_ms, clock))
    return events


def _pairs(
    join: Join, left: Iterable[Event], right: Iterable[Event], end_ms: int, found: Expected
) -> list[Event]:
    sides = [list(in_time(join, each, found)) for each in (left, right)]
    if join.kind in TTL_JOINS:
        join = replace(join, kind={"ttl": "join", "left_ttl": "left_join"}[join.kind])
        end_ms = FAR_MS
    return list(joined(join, sides[0], sides[1], end_ms))


def _given(level: Level, events: Iterable[Event], end_ms: int, found: Expected) -> Iterator[Event]:
    """Yield what a query gives."""
    match level.kind:
        case "frames":
            yield from _frames(level, events, end_ms, found)
        case "best" | "distinct":
            for (key, start), members in closed_windows(level, events, end_ms, found):
                if level.kind == "distinct":
                    # Kafka's clients take 0 for the current time.
                    yield _in_order(key, (b"%d" % key,), max(start, 1))
                else:
                    last = max(member.time_ms for member in members)
                    for member in sorted(members, key=lambda member: member.ids)[:BEST]:
                        yield _in_order(key, member.ids, last)
        case _:
            for each in windowed(level, events, end_ms, found):
                yield replace(each, window=None)


def _frames(level: Level, events: Iterable[Event], end_ms: int, found: Expected) -> Iterator[Event]:
    rows: defaultdict[int, list[Event]] = defaultdict(list)
    for each in events:
        if each.clock_ms > each.time_ms + level.grace_ms:
            found.expired += 1
        else:
            rows[each.key % level.keys].append(each)
    for key, members in rows.items():
        for each in members:
            time = each.time_ms
            frame = [m for m in members if time - level.size_ms <= m.time_ms <= time]
            if time + level.grace_ms < end_ms:
                ids = sorted(id_ for member in frame for id_ in member.ids)
                yield _in_order(key, tuple(ids), time)


def _totals(events: Iterable[Event]) -> list[Event]:
    ids: defaultdict[int, list[bytes]] = defaultdict(list)
    for each in events:
        ids[each.key % 2] += each.ids
    return [_in_order(key, tuple(sorted(found)), 0) for key, found in ids.items()]


def _in_order(key: int, ids: tuple[bytes, ...], time: int) -> Event:
    return Event(key, ids, time, time)

"""The results that windows and joins must have, from each source partition alone.

It knows nothing of tasks, of their speed, or of the order in which records of different partitions
meet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from kafka_pipeline.common.kafka.clients import Partition
from tests.user_code.timed_windows import (
    ALONE,
    DROPPED,
    HOLDING,
    SELF_JOIN,
    VERSIONED,
    Join,
    Kept,
    Level,
    Plan,
    comes_back,
)

FAR_MS = 10**15


class Input(NamedTuple):
    """A record of a source partition; the filter drops it unless it `stays`."""

    key: int
    id: int
    time_ms: int
    stays: bool

    @property
    def is_rejected(self) -> bool:
        """Whether the time is none, before 1970, or far in the future."""
        return not 0 <= self.time_ms < FAR_MS

    @property
    def value(self) -> bytes:
        """The value in the topic."""
        return (b"" if self.stays else DROPPED) + b"%d" % self.id


@dataclass(frozen=True, slots=True)
class Event:
    """A record on its way. `ids` are those of the inputs that it consists of, in order."""

    key: int
    ids: tuple[bytes, ...]
    time_ms: int
    clock_ms: int
    window: tuple[int, int] | None = None


class Result(NamedTuple):
    """A record of the output topic, as a test compares it."""

    key: bytes
    ids: tuple[bytes, ...]
    time_ms: int


@dataclass(slots=True)
class Expected:
    """The required outputs.

    `unsure` has the keys whose sessions depend on the order in which records of different
    partitions meet; of those, only the ids of all results together are certain.
    """

    results: Counter[Result] = field(default_factory=Counter)
    expired: int = 0
    most_split: int = 0
    """How many records are next to a session that may have closed by their own clock."""
    unsure: set[int] = field(default_factory=set)
    may_miss: bool = False
    """Whether records may be missing that event time did not wait for."""

    def comparable(self, results: Counter[Result]) -> Counter[Any]:
        """Return the parts of results that are certain: all of them, or single ids."""
        found: Counter[Any] = Counter()
        for result, count in results.items():
            key, *window = result.key.split(b"|")
            if self.may_miss:
                found.update({(key, *window, each): count for each in result.ids})
            elif int(key) in self.unsure:
                found.update({(key, each): count for each in result.ids})
            else:
                found[result] += count
        return found


def expected(
    plan: Plan,
    inputs: Mapping[Partition, Sequence[Input]],
    end_ms: int,
    *,
    may_miss: bool = False,
) -> Expected:
    """Return the results once all sources are at `end_ms`, where their last records are."""
    found = Expected(may_miss=may_miss)
    streams = [read(plan, topic, inputs) for topic in plan.topics]
    events = streams[0]
    if plan.join is not None:
        if plan.join.kind == VERSIONED:
            events = list(_with_versions(plan.join, streams[0], streams[1], end_ms))
        else:
            sides = [list(in_time(plan.join, each, found)) for each in streams]
            events = list(joined(plan.join, sides[0], sides[-1], end_ms))
    for level in plan.levels:
        events = list(windowed(level, events, end_ms, found))
    found.results = Counter(map(_result, events))
    return found


def read(plan: Plan, topic: str, inputs: Mapping[Partition, Sequence[Input]]) -> list[Event]:
    events = []
    for (of, _), records in inputs.items():
        if of != topic:
            continue
        records = [each for each in records if not each.is_rejected]
        clocks = accumulate((each.time_ms for each in records), max)
        for each, clock in zip(records, clocks, strict=True):
            if each.stays or not plan.drops:
                rounds = 1
                if plan.feedback and comes_back(each.value):
                    rounds, clock = 2, each.time_ms
                for kept in plan.kept:
                    clock = _clock_after(kept, each.time_ms, clock)
                key = each.key + rounds * len(plan.hops)
                events.append(Event(key, (each.value,), each.time_ms, clock))
    return events


def _clock_after(kept: Kept, time: int, clock: int) -> int:
    """Return the clock after a hop: what was held back has its own time as its clock."""
    holds = not HOLDING.keys().isdisjoint(kept.kinds)
    return time if holds and clock <= time + kept.hold_ms else clock


def _result(event: Event) -> Result:
    key = b"%d" % event.key
    if event.window is not None:
        key += b"|%d|%d" % event.window
    return Result(key, event.ids, event.time_ms)


def joined(
    join: Join, left: Iterable[Event], right: Iterable[Event], end_ms: int
) -> Iterator[Event]:
    partners: defaultdict[int, list[Event]] = defaultdict(list)
    alone: dict[Event, None] = {}
    for each in right:
        partners[each.key % join.keys].append(each)
        if join.kind == "outer_join" and each.time_ms + join.before_ms + join.grace_ms < end_ms:
            alone[each] = None
    for each in left:
        key, time = each.key % join.keys, each.time_ms
        first, last = time - join.before_ms, time + join.after_ms
        met = [other for other in partners[key] if first <= other.time_ms <= last]
        for other in met:
            alone.pop(other, None)
            yield _pair(key, each.ids[0], other.ids[0], max(time, other.time_ms))
        if join.kind not in ("join", SELF_JOIN) and not met and last + join.grace_ms < end_ms:
            yield _pair(key, each.ids[0], ALONE, time)
    for each in alone:
        yield _pair(each.key % join.keys, ALONE, each.ids[0], each.time_ms)


def _with_versions(
    join: Join, left: Iterable[Event], right: Iterable[Event], end_ms: int
) -> Iterator[Event]:
    """Yield records that have waited with the time of the version that was valid at theirs."""
    versions: defaultdict[int, list[int]] = defaultdict(list)
    for each in right:
        versions[each.key % join.keys].append(each.time_ms)
    for each in left:
        key, time = each.key % join.keys, each.time_ms
        if time + join.grace_ms < end_ms:
            newest = max((each for each in versions[key] if each <= time), default=None)
            found = b"%d" % newest if newest is not None and join.is_found(newest) else ALONE
            yield _pair(key, each.ids[0], found, time)


def _pair(key: int, left: bytes, right: bytes, time: int) -> Event:
    return Event(key, (b"%b+%b" % (left, right),), time, time)


def in_time(join: Join, events: Iterable[Event], found: Expected) -> Iterator[Event]:
    for each in events:
        if each.clock_ms > each.time_ms + join.grace_ms:
            found.expired += 1
        else:
            yield each


def windowed(
    level: Level, events: Iterable[Event], end_ms: int, found: Expected
) -> Iterator[Event]:
    if level.kind == "sessions":
        yield from _sessions(level, events, end_ms, found)
        return
    if level.kind == "sliding":
        yield from _sliding(level, events, end_ms)
        return
    for (key, start), members in closed_windows(level, events, end_ms, found):
        yield _together(key, members, (start, start + level.size_ms))


def closed_windows(
    level: Level, events: Iterable[Event], end_ms: int, found: Expected
) -> Iterator[tuple[tuple[int, int], list[Event]]]:
    """Yield the key and the start of each window that closes, and the events in it."""
    windows: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for each in events:
        for start in starts(level, each.time_ms):
            if each.clock_ms < start + level.size_ms + level.grace_ms:
                windows[each.key % level.keys, start].append(each)
            else:
                found.expired += 1
    for place, members in windows.items():
        if place[1] + level.size_ms + level.grace_ms <= end_ms:
            yield place, members


def starts(level: Level, time: int) -> Iterator[int]:
    """Yield the starts of the windows that a time is in; none begins before 1970."""
    start = time - time % level.advance_ms
    while start >= 0 and start + level.size_ms > time:
        yield start
        start -= level.advance_ms


def _together(key: int, members: Sequence[Event], window: tuple[int, int]) -> Event:
    ids = tuple(sorted(each for event in members for each in event.ids))
    time = max(event.time_ms for event in members)
    return Event(key, ids, time, time, window)


def _sliding(level: Level, events: Iterable[Event], end_ms: int) -> Iterator[Event]:
    """Yield the results of sliding windows, if no record is late."""
    by_key: defaultdict[int, list[Event]] = defaultdict(list)
    for each in events:
        by_key[each.key % level.keys].append(each)
    for key, members in by_key.items():
        times = {each.time_ms for each in members}
        # All that would begin before 1970 are one.
        starts = {max(time - level.size_ms, 0) for time in times} | {time + 1 for time in times}
        for start in starts:
            end = start + level.size_ms
            found = [each for each in members if start <= each.time_ms <= end]
            if found and end + level.grace_ms < end_ms:
                yield _together(key, found, (start, end))


def _sessions(
    level: Level, events: Iterable[Event], end_ms: int, found: Expected
) -> Iterator[Event]:
    gap, delay = level.size_ms, level.size_ms + level.grace_ms
    by_key: defaultdict[int, list[Event]] = defaultdict(list)
    for each in events:
        if each.time_ms + delay < each.clock_ms:
            found.expired += 1
        else:
            by_key[each.key % level.keys].append(each)
    for key, members in by_key.items():
        members.sort(key=lambda each: each.time_ms)
        session: list[Event] = []
        for each in members:
            if session and each.time_ms > session[-1].time_ms + gap:
                yield from _session(key, session, level, end_ms, found)
                session = []
            session.append(each)
        yield from _session(key, session, level, end_ms, found)


def _session(
    key: int,
    members: Sequence[Event],
    level: Level,
    end_ms: int,
    found: Expected,
) -> Iterator[Event]:
    gap, delay = level.size_ms, level.size_ms + level.grace_ms
    for each in members:
        # By its own clock, a session nearby has closed that others may still add to.
        closed = each.clock_ms - delay
        if any(each.time_ms - gap <= other.time_ms < closed for other in members):
            found.unsure.add(key)
            found.most_split += 1
    end = members[-1].time_ms
    if end + delay < end_ms:
        yield _together(key, members, (members[0].time_ms, end))

"""Random records for a query: when they come, in which batches, and where the task starts again.

A record is never late: it is at most `DISORDER_MIN` older than the newest one in its partition.
After a pause, times are far away; a pause is between two batches of all partitions.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from tests.random_sql.drawn_windows import GRACE_MIN
from tests.random_sql.queries import Query, Shape
from tests.random_sql.values import Raw, object_of

MINUTE_MS = 60_000
DISORDER_MIN = 30
FAR_MS = 40_000 * 24 * 60 * MINUTE_MS
"""Later than all records of all inputs."""

_BAD = (b"{", b"[1]", b"", b"\xff", b'{"s": "a"} tail', b"null", b'{"x": NaN}', b"{'s': 'a'}")
assert DISORDER_MIN < GRACE_MIN
_STEPS_MS = (0, 0, 1, 999, 20_000, 60_000, 180_000)
_LONG_STEPS_MS = (0, 1, 60_000, 1_800_000, 7_200_000)
_CHANGED_CLOCKS_MIN = (28_530_000, 28_833_060, 28_540_740)
"""Half a day before clocks change: in Berlin to summer time and back, and on Lord Howe Island."""


@dataclass(frozen=True)
class Record:
    """A record of an input or of a table."""

    topic: str
    partition: int
    key: str | None
    value: bytes | None
    time_ms: int
    is_bad: bool = False

    def __str__(self) -> str:
        """Show the record in a line."""
        return f"{self.topic}[{self.partition}] {self.key!r} at {self.time_ms}: {self.value!r}"


@dataclass(frozen=True)
class Inputs:
    """Batches of records; tasks start again in front of those in `restarts`."""

    partitions: int
    batches: tuple[tuple[Record, ...], ...]
    restarts: frozenset[int] = frozenset()

    @property
    def records(self) -> list[Record]:
        """All records, in the order in which they come."""
        return [record for batch in self.batches for record in batch]

    def __str__(self) -> str:
        """Show each record, and where batches end."""
        lines = []
        for place, batch in enumerate(self.batches):
            again = ", after a restart" if place in self.restarts else ""
            lines += [f"batch {place}{again}:", *(f"  {record}" for record in batch)]
        return "\n".join(lines)


def draw_inputs(query: Query, seed: int, size: int = 40) -> Inputs:
    """Return the inputs of a seed."""
    return _Inputs(query, random.Random(f"inputs {seed}"), size).draw()


class _Inputs:
    def __init__(self, query: Query, chance: random.Random, size: int) -> None:
        self._query, self._chance, self._size = query, chance, size
        # The order in which a task takes records of several topics depends on the partition alone,
        # but behind a topic, nothing keeps it.
        spread = (1, 1, 2, 3) if not query.is_ordered or query.groups_by_key else (1,)
        self._partitions = chance.choice(spread)
        keys = ("a", "b", "c", "é", "日", "")
        skew = ("a",) * chance.choice((0, 5))
        self._keys: list[str | None] = [*keys[: chance.choice((1, 3, 6))], *skew]
        if chance.random() < 0.6:
            self._keys.append(None)
        self._used = [
            each for each in range(self._partitions) if each == 0 or chance.random() < 0.8
        ]
        self._ahead = [
            chance.choice((0, 0, 7, 120, 26 * 60)) * MINUTE_MS for _ in range(self._partitions)
        ]
        self._steps = chance.choice((_STEPS_MS, _STEPS_MS, _LONG_STEPS_MS))
        self._newest = dict[tuple[str, str | None], bytes | None]()
        self._skips_bad = query.uses_a_field and chance.random() < 0.5

    def draw(self) -> Inputs:
        chance = self._chance
        now = chance.choice((0, 10, 1000, 28_400_000, *_CHANGED_CLOCKS_MIN)) * MINUTE_MS
        now += 12 * 3_600_000
        batches: list[tuple[Record, ...]] = []
        left = self._size
        while left > 0:
            size = min(left, chance.choice((1, 4, 12, 30)))
            batch = []
            for _ in range(size):
                now += chance.choice(self._steps)
                batch.append(self._record(now))
            batches.append(tuple(batch))
            left -= size
            if chance.random() < 0.2:
                now += chance.choice((3, 24, 24 * 400)) * 3_600_000
        restarts = frozenset(place for place in range(1, len(batches)) if chance.random() < 0.25)
        return Inputs(self._partitions, tuple(batches), restarts)

    def _record(self, now: int) -> Record:
        chance, query = self._chance, self._query
        topics = [*query.inputs] * 2 + [*query.topic_tables]
        topic = chance.choice(topics)
        key = chance.choice(self._keys)
        if topic in query.topic_tables and key is None:
            key = "a"
        back = chance.choice((0, 0, 0, 1, 60_000, chance.randrange(DISORDER_MIN * MINUTE_MS)))
        partition = self._used[_place(key) % len(self._used)]
        now += self._ahead[partition]
        if topic in query.inputs and self._skips_bad and chance.random() < 0.05:
            return Record(topic, partition, key, chance.choice(_BAD), now - back, is_bad=True)
        value = self._value(topic)
        if query.has_upserts(topic):
            if chance.random() < 0.15:
                value = self._newest.get((topic, key), value)
            self._newest[topic, key] = value
        return Record(topic, partition, key, value, now - back)

    def _value(self, topic: str) -> bytes | None:
        if self._chance.random() < (0.25 if self._query.has_upserts(topic) else 0.06):
            return None
        schema = self._query.inputs.get(topic) or self._query.topic_tables[topic]
        return as_json(object_of(dict(schema), self._chance)).encode()


def _place(key: str | None) -> int:
    return sum((key or "").encode())


def as_json(value: Any) -> str:
    """Return JSON in which decimals have all their digits."""
    match value:
        case Raw():
            return str(value)
        case dict():
            parts = (f"{json.dumps(name)}: {as_json(each)}" for name, each in value.items())
            return "{" + ", ".join(parts) + "}"
        case list():
            return "[" + ", ".join(map(as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def has_time(query: Query) -> bool:
    """Whether results wait for the time of later records."""
    is_bounded = query.shape is Shape.JOIN and not query.ttl
    return query.on_close or is_bounded or query.shape is Shape.OVER

"""Compares the results of two versions of a pipeline; values only, nothing here asks Kafka.

A result is equal to one of the other version if it has the same key, value, timestamp and headers,
and is in the same partition of the same output. What has found its counterpart is forgotten at
once. The rest waits until the caller knows that no counterpart can come any more, and says so by
`settle`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, takewhile
from typing import TypeAlias

from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch

Place: TypeAlias = tuple[str, int]
"""A partition of a topic."""

_Group: TypeAlias = tuple[str, int, bytes | None]
"""An output, a partition, -1 if it does not count, and a key."""

_Identity: TypeAlias = tuple[bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""A value, a timestamp and headers."""

MOST_WAITING_BYTES = 128_000_000
"""How much may wait of each version, in memory, before the caller should read the other one."""

EXAMPLES = 5
"""How many differences of each kind an output keeps, the first ones."""

_ENTRY_BYTES = 1400
"""About what a result that waits takes, without its key and value (measured: 1,390)."""
_MOST_PASSED = 1000
"""How many results of a key are looked at to see whether the order is another one."""


class Side(StrEnum):
    """The version that a result is of."""

    OLD = "old"
    NEW = "new"

    @property
    def other(self) -> Side:
        """The other version."""
        return Side.NEW if self is Side.OLD else Side.OLD


class Kind(StrEnum):
    """How the two versions differ in a result.

    `DIFFERENT` is the next result of a key in both, with another value, timestamp or header.
    `REORDERED` is equal, but comes after a result of its key that it came before in the other one.
    """

    DIFFERENT = "different"
    REORDERED = "reordered"
    ONLY_OLD = "only old"
    ONLY_NEW = "only new"


@dataclass(frozen=True, slots=True)
class Output:
    """A sink, or the dead letters of a processor, and its topic in either version if it has one.

    Partitions, order and headers count in a sink only: a dead letter's are those of its job.
    """

    name: str
    old: str | None
    new: str | None
    is_sink: bool = True

    def topic(self, side: Side) -> str | None:
        """Return the topic of a version."""
        return self.old if side is Side.OLD else self.new


@dataclass(slots=True)
class Result:
    """A record of an output; `offset` is in the topic of its version."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]
    is_passed: bool = field(default=False, repr=False)
    """Whether a later result of the key has found its counterpart already."""

    @property
    def identity(self) -> _Identity:
        """What its counterpart has, too."""
        return self.value, self.timestamp_ms, self.headers

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes while it waits."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return _ENTRY_BYTES + len(self.key or b"") + len(self.value or b"") + headers


@dataclass(frozen=True, slots=True)
class Example:
    """A difference, with the result of each version that has one."""

    output: str
    kind: Kind
    old: Result | None
    new: Result | None


@dataclass(slots=True)
class Tally:
    """What was found in an output; `results` counts what was read of each version."""

    equal: int = 0
    results: dict[Side, int] = field(default_factory=lambda: dict.fromkeys(Side, 0))
    differences: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    examples: list[Example] = field(default_factory=list)

    def add(self, example: Example) -> None:
        """Count a difference, and keep it if it is among the first of its kind."""
        if self.differences[example.kind] < EXAMPLES:
            self.examples.append(example)
        self.differences[example.kind] += 1


class _Waiting:
    """The results of one version that have no counterpart yet, in the order of their offsets."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.places: dict[Place, dict[int, tuple[_Group, Result]]] = {}
        self._groups: dict[_Group, dict[tuple[str, int, int], Result]] = {}
        self._equal: dict[tuple[_Group, _Identity], deque[tuple[str, Result]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.places.values()))

    def add(self, group: _Group, topic: str, result: Result) -> None:
        self.size_bytes += result.size_bytes
        self.places.setdefault((topic, result.partition), {})[result.offset] = group, result
        of_group = self._groups.setdefault(group, {})
        of_group[topic, result.partition, result.offset] = result
        self._equal.setdefault((group, result.identity), deque()).append((topic, result))

    def equal(self, group: _Group, result: Result) -> tuple[str, Result] | None:
        """Return the first result that is equal, with its topic, if possible one in order."""
        found = self._equal.get((group, result.identity))
        if found is None:
            return None
        in_order = (each for each in islice(found, _MOST_PASSED) if not each[1].is_passed)
        return next(in_order, found[0])

    def first(self, group: _Group) -> tuple[str, Result] | None:
        """Return the first result of a group, with its topic."""
        for (topic, _, _), result in self._groups.get(group, {}).items():
            return topic, result
        return None

    def before(self, place: Place, end: int) -> list[tuple[_Group, Result]]:
        """Return the results of a partition before an offset, with their groups."""
        its = self.places.get(place, {}).values()
        return [*takewhile(lambda each: each[1].offset < end, its)]

    def ahead_of(self, group: _Group, result: Result) -> Iterator[Result]:
        """Yield the first results of a group, as far as they come before one of it."""
        of_group = self._groups.get(group, {}).values()
        return takewhile(lambda each: each is not result, islice(of_group, _MOST_PASSED))

    def remove(self, group: _Group, topic: str, result: Result) -> None:
        self.size_bytes -= result.size_bytes
        del self.places[topic, result.partition][result.offset]
        of_group = self._groups[group]
        del of_group[topic, result.partition, result.offset]
        if not of_group:
            del self._groups[group]
        key = group, result.identity
        equal = self._equal[key]
        # Compared by identity: those that are equal differ in their offsets only.
        index = next(i for i, (_, each) in enumerate(equal) if each is result)
        del equal[index]
        if not equal:
            del self._equal[key]


class Comparer:
    """Takes the results of both versions as they are read, and counts what differs."""

    def __init__(
        self, outputs: Collection[Output], most_waiting_bytes: int = MOST_WAITING_BYTES
    ) -> None:
        self.tallies = {output.name: Tally() for output in outputs}
        self.judged_early = 0
        """How many results were judged before `settle`, since too much waited of both versions."""
        self._most = most_waiting_bytes
        self._outputs = {
            (side, topic): output
            for output in outputs
            for side in Side
            if (topic := output.topic(side)) is not None
        }
        self._waiting = {side: _Waiting() for side in Side}

    def waiting(self, side: Side) -> int:
        """Return how many results of a version have no counterpart yet."""
        return len(self._waiting[side])

    def is_full(self, side: Side) -> bool:
        """Whether so much waits of a version that the other one should be read first."""
        return self._waiting[side].size_bytes > self._most

    def take(self, side: Side, batch: RecordBatch) -> None:
        """Add results of a version, which follow those of the partition that it has."""
        output = self._outputs[side, batch.topic]
        tally = self.tallies[output.name]
        tally.results[side] += len(batch)
        waiting, others = self._waiting[side], self._waiting[side.other]
        for result in _results(batch, with_headers=output.is_sink):
            has_place = output.is_sink and result.key is not None
            group = output.name, batch.partition if has_place else -1, result.key
            found = others.equal(group, result)
            if found is None:
                waiting.add(group, batch.topic, result)
                continue
            topic, counterpart = found
            if has_place and not counterpart.is_passed:
                for each in others.ahead_of(group, counterpart):
                    each.is_passed = True
            others.remove(group, topic, counterpart)
            if counterpart.is_passed:
                pair = {side: result, side.other: counterpart}
                tally.add(Example(output.name, Kind.REORDERED, pair[Side.OLD], pair[Side.NEW]))
                continue
            tally.equal += 1

    def settle(self, side: Side, ends: Mapping[Place, int]) -> None:
        """Judge the results of a version before these offsets: their counterparts were all taken.

        One with a key is different from the next result of the key in the other version, if there
        is one that waits. Otherwise, only its version has it.
        """
        waiting = self._waiting[side]
        for place, end in ends.items():
            self._judge(side, place[0], waiting.before(place, end))

    def judge_early(self) -> None:
        """Judge half of what waits of both versions, the oldest, to have room for more.

        What has its counterpart further on is then counted as a difference.
        """
        for side in Side:
            for (topic, _), its in self._waiting[side].places.items():
                oldest = [*islice(its.values(), (len(its) + 1) // 2)]
                self.judged_early += len(oldest)
                self._judge(side, topic, oldest)

    def _judge(self, side: Side, topic: str, results: Iterable[tuple[_Group, Result]]) -> None:
        waiting, others = self._waiting[side], self._waiting[side.other]
        for group, result in results:
            waiting.remove(group, topic, result)
            # Without a key, there is no order by which they belong together.
            found = None if result.key is None else others.first(group)
            pair: dict[Side, Result | None] = {side: result, side.other: None}
            kind = Kind.ONLY_OLD if side is Side.OLD else Kind.ONLY_NEW
            if found is not None:
                others.remove(group, *found)
                pair[side.other], kind = found[1], Kind.DIFFERENT
            self.tallies[group[0]].add(Example(group[0], kind, pair[Side.OLD], pair[Side.NEW]))


def _results(batch: RecordBatch, *, with_headers: bool) -> Iterator[Result]:
    headers: Iterable[KafkaHeaders] = batch.headers or [None] * len(batch)
    columns = batch.offsets, batch.keys, batch.values, batch.timestamps, headers
    for offset, key, value, timestamp, its in zip(*columns, strict=True):
        kept = tuple((name, data) for name, data in its or ()) if with_headers else ()
        yield Result(batch.partition, offset, key, value, timestamp, kept)

"""Follows the dead letters of a job: reads what is new, and keeps the newest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.kafka.bulk import read_from
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.operations.dead_letters import DeadLetter, letters, notes
from kafka_pipeline.operations.redrive import DeadLetterTopics

MOST_LETTERS = 20_000
_AT_ONCE = 500
_STALL_TIMEOUT_S = 10
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class LetterList:
    """The newest letters without their records, those of a partition in order.

    `topics` has the topic of each processor with dead letters, and `older` how many offsets of it
    come before the ones that are kept, 0 or more.
    """

    letters: tuple[DeadLetter, ...]
    topics: Mapping[str, str]
    older: Mapping[str, int]


class LatestLetters:
    """The newest dead letters of a job; for one thread at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._index = LetterIndex(MOST_LETTERS)

    def read(self) -> LetterList:
        """Read what is new; return all that is kept.

        Nothing is fetched if there is nothing new. Raises `UnavailableError` if Kafka does not
        answer, or if a transaction stays open for ten seconds.
        """
        topics = DeadLetterTopics(self._config)
        places, bounds = topics.places(), topics.bounds()
        starts = self._index.begin(bounds)
        if starts:
            ends = {place: end for place, (_, end) in bounds.items()}
            for batch in read_from(self._config, starts, ends, _STALL_TIMEOUT_S, _AT_ONCE):
                self._index.take(places[batch.topic, batch.partition], batch)
            self._index.finish(bounds)
        older = Counter[str]()
        for place, left_out in self._index.older(bounds).items():
            older[places[place]] += left_out
        return LetterList(tuple(self._index), dict(topics.topics), older)


class LetterIndex:
    """Letters without keys, values, headers and stack traces, and how each was dealt with."""

    def __init__(self, most: int) -> None:
        """Keep about `most` letters, shared equally by all partitions; 1 or more."""
        self._most = most
        self._next: dict[Partition, int] = {}
        self._letters: dict[Partition, dict[int, DeadLetter]] = {}

    def begin(self, bounds: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
        """Return the offset at which to read on in each partition of which something is new.

        `bounds` has the oldest offset and the end of each partition. What is not there any more is
        forgotten, and what is older than the newest offsets that are kept.
        """
        self._letters = {place: self._letters.get(place, {}) for place in bounds}
        starts: dict[Partition, int] = {}
        for place, (oldest, end) in bounds.items():
            if end < self._next.get(place, 0):  # the topic was deleted, and made again
                self._letters[place], self._next[place] = {}, 0
            first = max(oldest, end - self._room(bounds))
            kept = self._letters[place]
            self._letters[place] = {at: one for at, one in kept.items() if at >= first}
            start = max(first, self._next.get(place, 0))
            if start < end:
                starts[place] = start
        return starts

    def take(self, processor: str, batch: RecordBatch) -> None:
        """Add the next records of a partition."""
        place = batch.topic, batch.partition
        kept = self._letters[place]
        for letter in letters(processor, [batch]):
            kept[letter.id.offset] = _without_record(letter)
        for (_, offset), how in notes([batch]).items():
            if offset in kept:
                kept[offset] = replace(kept[offset], handled=how)
        self._next[place] = batch.offsets[-1] + 1

    def finish(self, bounds: Mapping[Partition, tuple[int, int]]) -> None:
        """Say that all was read up to the ends, where markers of transactions may be."""
        for place, (_, end) in bounds.items():
            self._next[place] = max(self._next.get(place, 0), end)

    def older(self, bounds: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
        """Return how many offsets of each partition come before the ones that are kept."""
        room = self._room(bounds)
        return {place: max(end - room - oldest, 0) for place, (oldest, end) in bounds.items()}

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield all letters, those of a partition in order."""
        for kept in self._letters.values():
            yield from kept.values()

    def _room(self, bounds: Mapping[Partition, tuple[int, int]]) -> int:
        """Return how many offsets of each partition are kept."""
        return max(self._most // max(len(bounds), 1), 1)


def _without_record(letter: DeadLetter) -> DeadLetter:
    reason = shorten(letter.reason, _LONGEST_REASON)
    return replace(letter, key=None, value=None, headers=None, stacktrace="", reason=reason)

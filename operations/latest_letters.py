"""Follows the dead letters of a job: reads what is new, and keeps the newest ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_pipeline.common.config import Config
from kafka_pipeline.common.kafka.bulk import read_from
from kafka_pipeline.operations.dead_letters import DeadLetter
from kafka_pipeline.operations.letter_index import LetterIndex
from kafka_pipeline.operations.redrive import DeadLetterTopics

MOST_LETTERS = 20_000
_AT_ONCE = 500
_STALL_TIMEOUT_S = 10


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

"""How a stalled consumer is told apart from one without new records."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.stall_watch import GRACE_S, SILENCE_S, StallWatch

LINES, WORDS = ("lines", 0), ("words", 1)


class Asker:
    """Answers with these ends; `None` is an error, and what is not there never comes."""

    def __init__(self, ends: dict[Partition, int | None]) -> None:
        self._ends = ends
        self.asked: list[set[Partition]] = []

    def request_stable_ends(
        self, partitions: Collection[Partition]
    ) -> dict[Partition, Future[Any]]:
        self.asked.append(set(partitions))
        answers = {}
        for partition in partitions:
            answers[partition] = answer = Future[Any]()
            if partition in self._ends:
                end = self._ends[partition]
                if end is None:
                    answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
                else:
                    answer.set_result(SimpleNamespace(offset=end))
        return answers


def told_at(watch: StallWatch, positions: dict[Partition, int], *times: float) -> list[float]:
    """Look at these times; return those at which the consumer counts as stalled."""
    return [now_s for now_s in times if watch.stands_still(positions, now_s)]


def steps(first: float, last: float) -> list[float]:
    """Return the times from `first` to `last`, 0.25 s apart."""
    return [first + n / 4 for n in range(round((last - first) * 4) + 1)]


@pytest.mark.parametrize(
    ("ends", "is_stuck"),
    [
        ({LINES: 8, WORDS: 5}, True),
        ({LINES: 7, WORDS: 5}, False),
        ({LINES: 7}, False),
        ({LINES: None, WORDS: 6}, True),
        ({LINES: None, WORDS: None}, False),
        ({}, False),
    ],
)
def test_consumer_stands_still_if_a_partition_goes_on_behind_what_it_has_read(
    ends: dict[Partition, int | None], is_stuck: bool
) -> None:
    watch = StallWatch(Asker(ends))
    watch.heard(100)
    told = told_at(watch, {LINES: 7, WORDS: 5}, *steps(100, 120))
    assert told == ([100 + SILENCE_S + GRACE_S] if is_stuck else [])


def test_one_that_brings_something_while_it_is_asked_about_does_not_stand_still() -> None:
    asker = Asker({LINES: 8})
    watch = StallWatch(asker)
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 12)) == []
    watch.heard(12)
    assert told_at(watch, {LINES: 7}, *steps(12, 21.75)) == []
    assert len(asker.asked) == 1
    assert told_at(watch, {LINES: 8}, *steps(22, 27)) == []
    assert len(asker.asked) == 2


def test_silence_is_looked_into_every_fifteen_seconds_and_not_more() -> None:
    asker = Asker({LINES: 7})
    watch = StallWatch(asker)
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 60)) == []
    assert len(asker.asked) == 4


def test_each_consumer_that_did_not_help_gives_the_next_one_twice_as_long() -> None:
    """It may read past the records of aborted transactions, and delivers nothing meanwhile."""
    watch = StallWatch(Asker({LINES: 8}))
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 90)) == [15, 40, 85]
    watch.heard(90)
    assert told_at(watch, {LINES: 7}, *steps(90, 120)) == [105]


def test_consumer_that_is_to_read_something_else_has_not_brought_anything() -> None:
    watch = StallWatch(Asker({LINES: 8}))
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 15)) == [15]
    watch.begin(15)
    assert told_at(watch, {LINES: 7}, *steps(15, 40)) == [40]


def test_time_in_which_nobody_looked_says_nothing() -> None:
    asker = Asker({LINES: 8})
    watch = StallWatch(asker)
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, 60, 120, 180) == []
    assert asker.asked == []
    assert told_at(watch, {LINES: 7}, *steps(180, 189), 250, 310, 370) == []
    assert len(asker.asked) == 1
    assert len(told_at(watch, {LINES: 7}, *steps(370, 375))) == 1


def test_nothing_is_asked_about_partitions_that_are_not_read() -> None:
    asker = Asker({LINES: 9})
    watch = StallWatch(asker)
    watch.heard(0)
    assert told_at(watch, {}, *steps(0, 30)) == []
    assert asker.asked == []
    assert told_at(watch, {LINES: 7}, *steps(30, 41)) == []
    assert len(asker.asked) == 1
    # It was given up in the meantime.
    assert told_at(watch, {WORDS: 1}, *steps(41.25, 50)) == []

"""Tests of how a consumer that stands still is told from one that has nothing to bring."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from common.kafka.clients import Partition
from common.kafka.stall_watch import GRACE_S, SILENCE_S, StallWatch

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


def looks(watch: StallWatch, positions: dict[Partition, int], *times: float) -> list[bool]:
    return [watch.stands_still(positions, now_s) for now_s in times]


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
    asked, told = 100 + SILENCE_S, 100 + SILENCE_S + GRACE_S
    positions = {LINES: 7, WORDS: 5}
    assert looks(watch, positions, asked - 1, asked, told - 1, told) == [
        False,
        False,
        False,
        is_stuck,
    ]


def test_one_that_brings_something_while_it_is_asked_about_does_not_stand_still() -> None:
    asker = Asker({LINES: 8})
    watch = StallWatch(asker)
    watch.heard(0)
    assert looks(watch, {LINES: 7}, 10, 11) == [False, False]
    watch.heard(12)
    assert looks(watch, {LINES: 7}, 15, 21.9) == [False, False]
    assert len(asker.asked) == 1
    assert looks(watch, {LINES: 8}, 22, 27) == [False, False]
    assert len(asker.asked) == 2


def test_silence_is_looked_into_every_fifteen_seconds_and_not_more() -> None:
    asker = Asker({LINES: 7})
    watch = StallWatch(asker)
    watch.heard(0)
    assert not any(looks(watch, {LINES: 7}, *(tenth / 10 for tenth in range(601))))
    assert len(asker.asked) == 4


def test_nothing_is_asked_about_partitions_that_are_not_read() -> None:
    asker = Asker({LINES: 9})
    watch = StallWatch(asker)
    watch.heard(0)
    assert looks(watch, {}, 10, 20, 30) == [False, False, False]
    assert asker.asked == []
    assert looks(watch, {LINES: 7}, 40) == [False]
    # It was given up in the meantime.
    assert looks(watch, {WORDS: 1}, 45) == [False]

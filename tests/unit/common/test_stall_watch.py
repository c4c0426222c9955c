"""How a stalled consumer is told apart from one without new records."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.stall_watch import GRACE_S, SILENCE_S, StallWatch

LINES, WORDS = ("lines", 0), ("words", 1)


class FoundScout:
    """One that is back with these ends."""

    def __init__(self, ends: dict[Partition, int]) -> None:
        self.ends = ends
        self.is_dismissed = False

    def dismiss(self) -> None:
        self.is_dismissed = True


class Sender:
    """Sends scouts that find these ends, as far as they are asked for."""

    def __init__(self, ends: dict[Partition, int]) -> None:
        self._ends = ends
        self.sent: list[Any] = []

    def __call__(self, partitions: Collection[Partition]) -> Any:
        self.sent.append(FoundScout({p: e for p, e in self._ends.items() if p in partitions}))
        return self.sent[-1]


def told_at(watch: StallWatch, positions: dict[Partition, int], *times: float) -> list[float]:
    """Look at these times; return those at which the consumer counts as stalled."""
    return [now_s for now_s in times if watch.find_successor(positions, now_s)]


def steps(first: float, last: float) -> list[float]:
    """Return the times from `first` to `last`, 0.25 s apart."""
    return [first + n / 4 for n in range(round((last - first) * 4) + 1)]


@pytest.mark.parametrize(
    ("ends", "is_stuck"),
    [
        ({LINES: 8, WORDS: 5}, True),
        ({LINES: 7, WORDS: 5}, False),
        ({LINES: 7}, False),
        ({WORDS: 6}, True),
        ({}, False),
    ],
)
def test_consumer_stands_still_if_a_partition_goes_on_behind_what_it_has_read(
    ends: dict[Partition, int], is_stuck: bool
) -> None:
    sender = Sender(ends)
    watch = StallWatch(sender)
    watch.heard(100)
    told = told_at(watch, {LINES: 7, WORDS: 5}, *steps(100, 120))
    assert told == ([100 + SILENCE_S + GRACE_S] if is_stuck else [])
    assert sender.sent[0].is_dismissed is not is_stuck


def test_scout_that_finds_more_is_the_successor_and_the_caller_closes_it() -> None:
    sender = Sender({LINES: 8})
    watch = StallWatch(sender, silence_s=2)
    watch.heard(0)
    found = [watch.find_successor({LINES: 7}, now_s) for now_s in steps(0, 2 + GRACE_S)]
    watch.end()
    assert [each for each in found if each] == sender.sent
    assert not sender.sent[0].is_dismissed


def test_one_that_brings_something_while_it_is_asked_about_does_not_stand_still() -> None:
    sender = Sender({LINES: 8})
    watch = StallWatch(sender)
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 12)) == []
    watch.heard(12)
    assert told_at(watch, {LINES: 7}, *steps(12, 21.75)) == []
    assert len(sender.sent) == 1
    assert told_at(watch, {LINES: 8}, *steps(22, 27)) == []
    assert len(sender.sent) == 2


def test_silence_is_looked_into_every_fifteen_seconds_and_not_more() -> None:
    sender = Sender({LINES: 7})
    watch = StallWatch(sender)
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 60)) == []
    assert len(sender.sent) == 4


def test_each_consumer_that_did_not_help_gives_the_next_one_twice_as_long() -> None:
    """It may read past the records of aborted transactions, and delivers nothing meanwhile."""
    watch = StallWatch(Sender({LINES: 8}))
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 90)) == [15, 40, 85]
    watch.heard(90)
    assert told_at(watch, {LINES: 7}, *steps(90, 120)) == [105]


def test_consumer_that_is_to_read_something_else_has_not_brought_anything() -> None:
    watch = StallWatch(Sender({LINES: 8}))
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, *steps(0, 15)) == [15]
    watch.begin(15)
    assert told_at(watch, {LINES: 7}, *steps(15, 40)) == [40]


def test_time_in_which_nobody_looked_says_nothing() -> None:
    sender = Sender({LINES: 8})
    watch = StallWatch(sender)
    watch.heard(0)
    assert told_at(watch, {LINES: 7}, 60, 120, 180) == []
    assert sender.sent == []
    assert told_at(watch, {LINES: 7}, *steps(180, 189), 250, 310, 370) == []
    assert len(sender.sent) == 1
    assert len(told_at(watch, {LINES: 7}, *steps(370, 375))) == 1


def test_nothing_is_asked_about_partitions_that_are_not_read() -> None:
    sender = Sender({LINES: 9})
    watch = StallWatch(sender)
    watch.heard(0)
    assert told_at(watch, {}, *steps(0, 30)) == []
    assert sender.sent == []
    assert told_at(watch, {LINES: 7}, *steps(30, 41)) == []
    assert len(sender.sent) == 1
    # It was given up in the meantime.
    assert told_at(watch, {WORDS: 1}, *steps(41.25, 50)) == []

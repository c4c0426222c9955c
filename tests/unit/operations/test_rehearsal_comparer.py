"""How the results of two versions of a pipeline are compared."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.operations.rehearsal.comparer import (
    EXAMPLES,
    Comparer,
    Example,
    Kind,
    Output,
    Side,
    Tally,
)

TOTALS = Output("totals", "totals", "rehearsal-totals")
LETTERS = Output("dead letters of A", "A_dead_letter", "A_dead_letter-rehearsal", is_sink=False)
Row = tuple[bytes | None, bytes | None]


class Both:
    """Two versions that write to an output, each record at the time of its number."""

    def __init__(self, output: Output = TOTALS, **options: int) -> None:
        self.comparer = Comparer([output], **options)
        self._output = output
        self._ends: dict[Side, dict[tuple[str, int], int]] = {side: {} for side in Side}

    @property
    def tally(self) -> Tally:
        return self.comparer.tallies[self._output.name]

    @property
    def examples(self) -> list[Example]:
        return self.tally.examples

    def old(self, *rows: Row, partition: int = 0, time_ms: int = 0) -> None:
        self.write(Side.OLD, rows, partition, time_ms)

    def new(self, *rows: Row, partition: int = 0, time_ms: int = 0) -> None:
        self.write(Side.NEW, rows, partition, time_ms)

    def write(
        self,
        side: Side,
        rows: Sequence[Row],
        partition: int = 0,
        time_ms: int = 0,
        headers: KafkaHeaders = None,
    ) -> None:
        topic = self._output.topic(side)
        assert topic is not None
        begin = self._ends[side].get((topic, partition), 0)
        count = len(rows)
        batch = RecordBatch(
            topic,
            partition,
            [key for key, _ in rows],
            [value for _, value in rows],
            [time_ms] * count,
            range(begin, begin + count),
            [headers] * count if headers else None,
        )
        self._ends[side][topic, partition] = begin + count
        self.comparer.take(side, batch)

    def settle(self) -> None:
        for side in Side:
            self.comparer.settle(side, self._ends[side])

    @property
    def found(self) -> dict[str, int]:
        """Return what differs, without zeros."""
        self.settle()
        found = {str(kind): count for kind, count in self.tally.differences.items() if count}
        return {"equal": self.tally.equal, **found} if self.tally.equal else found


@pytest.fixture
def both() -> Both:
    return Both()


def test_equal_results_are_forgotten_at_once_whoever_is_ahead(both: Both) -> None:
    both.old((b"a", b"1"), (b"a", b"2"))
    both.new((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    both.old((b"a", b"3"))
    assert not any(map(both.comparer.waiting, Side))
    assert both.found == {"equal": 3}


def test_the_next_results_of_a_key_are_compared_if_they_are_not_equal(both: Both) -> None:
    both.old((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    both.new((b"a", b"10"), (b"b", b"1"), (b"a", b"20"))
    assert both.found == {"equal": 1, "different": 2}
    pairs = [(each.old and each.old.value, each.new and each.new.value) for each in both.examples]
    assert pairs == [(b"1", b"10"), (b"2", b"20")]


def test_a_result_that_is_left_out_does_not_make_all_that_follow_different(both: Both) -> None:
    both.old((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"a", b"4"))
    both.new((b"a", b"1"), (b"a", b"3"), (b"a", b"4"))
    assert both.found == {"equal": 3, "only old": 1}


def test_a_repeated_result_counts_once_more(both: Both) -> None:
    both.old((b"a", b"1"))
    both.new((b"a", b"1"), (b"a", b"1"))
    assert both.found == {"equal": 1, "only new": 1}


def test_another_order_of_a_key_is_a_difference_and_that_of_keys_is_not(both: Both) -> None:
    both.old((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    both.new((b"b", b"1"), (b"a", b"2"), (b"a", b"1"))
    assert both.found == {"equal": 2, "reordered": 1}


def test_a_value_that_comes_again_is_not_taken_for_another_order(both: Both) -> None:
    both.old((b"a", b"1"), (b"a", b"2"), (b"a", b"1"))
    both.new((b"a", b"2"), (b"a", b"1"))
    assert both.found == {"equal": 2, "only old": 1}


def test_a_tombstone_is_not_an_empty_value(both: Both) -> None:
    both.old((b"a", None), (b"b", None))
    both.new((b"a", None), (b"b", b""))
    assert both.found == {"equal": 1, "different": 1}


def test_another_timestamp_is_a_difference(both: Both) -> None:
    both.old((b"a", b"1"), time_ms=7)
    both.new((b"a", b"1"), time_ms=8)
    assert both.found == {"different": 1}


def test_other_headers_are_a_difference(both: Both) -> None:
    both.write(Side.OLD, [(b"a", b"1")], headers=[("unit", b"ms")])
    both.write(Side.NEW, [(b"a", b"1")], headers=[("unit", b"s")])
    assert both.found == {"different": 1}


def test_a_key_in_another_partition_is_in_one_version_only(both: Both) -> None:
    both.old((b"a", b"1"), partition=0)
    both.new((b"a", b"1"), partition=1)
    assert both.found == {"only old": 1, "only new": 1}


def test_results_without_a_key_may_be_in_any_partition_and_order(both: Both) -> None:
    both.old((None, b"1"), (None, b"2"), (None, b"3"), partition=0)
    both.new((None, b"3"), (None, b"1"), partition=1)
    both.new((None, b"4"), partition=0)
    assert both.found == {"equal": 2, "only old": 1, "only new": 1}


def test_dead_letters_may_have_other_headers_and_partitions() -> None:
    both = Both(LETTERS)
    both.write(Side.OLD, [(b"a", b"x")], 0, headers=[("__streams.errors.offset", b"7")])
    both.write(Side.NEW, [(b"a", b"x")], 1, headers=[("__streams.errors.offset", b"9")])
    both.new((b"b", b"y"))
    assert both.found == {"equal": 1, "only new": 1}


def test_what_may_still_find_its_counterpart_is_not_judged(both: Both) -> None:
    both.old((b"a", b"1"), (b"a", b"2"))
    both.comparer.settle(Side.OLD, {("totals", 0): 1})
    assert both.tally.differences[Kind.ONLY_OLD] == 1
    assert both.comparer.waiting(Side.OLD) == 1
    both.new((b"a", b"2"))
    assert both.found == {"equal": 1, "only old": 1}


def test_what_is_judged_meets_a_late_result_of_its_key(both: Both) -> None:
    """The new version's result is beyond what was settled, as it is ahead."""
    both.old((b"a", b"1"))
    both.new((b"a", b"9"))
    both.comparer.settle(Side.OLD, {("totals", 0): 1})
    assert both.found == {"different": 1}


def test_an_output_of_one_version_has_no_counterparts() -> None:
    both = Both(Output("audit", None, "rehearsal-audit"))
    both.new((b"a", b"1"))
    assert both.found == {"only new": 1}
    assert both.tally.results == {Side.OLD: 0, Side.NEW: 1}


def test_several_outputs_are_counted_by_themselves() -> None:
    other = Output("others", "others", "rehearsal-others")
    comparer = Comparer([TOTALS, other])
    for side in Side:
        for output in (TOTALS, other):
            topic = output.topic(side) or ""
            value = b"2" if (side, output) == (Side.NEW, other) else b"1"
            comparer.take(side, RecordBatch(topic, 0, [b"a"], [value], [0], [0]))
            comparer.settle(Side.OLD, {})
    for side in Side:
        comparer.settle(side, {(other.topic(side) or "", 0): 1})
    assert comparer.tallies["totals"].equal == 1
    assert comparer.tallies["others"].differences[Kind.DIFFERENT] == 1


def test_the_first_differences_of_each_kind_are_kept(both: Both) -> None:
    both.old(*((b"k%d" % n, b"x") for n in range(EXAMPLES + 3)), (b"gone", b"1"))
    both.new(*((b"k%d" % n, b"y") for n in range(EXAMPLES + 3)))
    assert both.found == {"different": EXAMPLES + 3, "only old": 1}
    kinds = [each.kind for each in both.examples]
    assert kinds == [Kind.DIFFERENT] * EXAMPLES + [Kind.ONLY_OLD]


def test_long_runs_of_equal_results_leave_nothing_in_memory(both: Both) -> None:
    for number in range(200):
        both.old(*((b"k%d" % n, b"%d" % number) for n in range(50)))
        assert both.comparer.waiting(Side.OLD) == 50
        both.new(*((b"k%d" % n, b"%d" % number) for n in range(50)))
        assert not both.comparer.waiting(Side.OLD)
    assert both.found == {"equal": 10_000}


def test_a_version_that_is_far_ahead_is_full_until_the_other_one_follows() -> None:
    both = Both(most_waiting_bytes=10_000)
    rows = [(b"a", b"%d" % n) for n in range(100)]
    both.old(*rows)
    assert both.comparer.is_full(Side.OLD)
    assert not both.comparer.is_full(Side.NEW)
    both.new(*rows)
    assert not both.comparer.is_full(Side.OLD)
    assert both.found == {"equal": 100}


def test_if_too_much_waits_of_both_the_oldest_is_judged_early() -> None:
    both = Both(most_waiting_bytes=10_000)
    both.old(*((b"a", b"old %d" % n) for n in range(100)))
    both.new(*((b"a", b"new %d" % n) for n in range(100)))
    assert all(map(both.comparer.is_full, Side))
    before = both.comparer.waiting(Side.OLD)
    both.comparer.judge_early()
    assert both.comparer.waiting(Side.OLD) <= before // 2
    assert both.comparer.judged_early >= 50
    assert both.found == {"different": 100}


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_reading_does_not_matter(seed: int) -> None:
    """Partitions of both versions come in any order; three results were changed on the way."""
    chance = random.Random(seed)
    rows = {
        partition: [(b"k%d" % chance.randrange(5), b"%d" % n) for n in range(60)]
        for partition in range(3)
    }
    changed = {number: list(its) for number, its in rows.items()}
    for partition in changed:
        key, value = changed[partition][20]
        changed[partition][20] = key, (value or b"") + b"!"
    both = Both()
    left = [(Side.OLD, *each) for each in rows.items()]
    left += [(Side.NEW, *each) for each in changed.items()]
    at = dict.fromkeys([each[:2] for each in left], 0)
    while left:
        side, partition, its = chance.choice(left)
        begin = at[side, partition]
        end = min(begin + chance.randrange(1, 9), len(its))
        both.write(side, its[begin:end], partition)
        at[side, partition] = end
        left = [each for each in left if at[each[:2]] < len(each[2])]
    assert both.found == {"equal": 177, "different": 3}

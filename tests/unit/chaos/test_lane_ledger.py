"""The judge of windows behind a repartition in the chaos harness, and the brake before them."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from random import Random

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.chaos import lanes
from tests.chaos.dsl_ledger import DslLedger
from tests.chaos.event_times import FAST_STEP_MS, SLOW_STEP_MS, EventTimes
from tests.chaos.lanes import build, lane_of, passed_of
from tests.chaos.ledger import BASE, value_of
from tests.chaos.load import KEYS, keys_in
from tests.chaos.numbered_results import Tally
from tests.tiers import long_but_the_first
from tests.user_code.numbered import WINDOW_MS

EPOCHS = 3
PARTITIONS = 3
NOTHING = dict.fromkeys(KEYS, 0)
Row = tuple[int, bytes, int]
Result = tuple[bytes, bytes]


def rows(times: EventTimes, written: dict[bytes, int], length_ms: int) -> list[Row]:
    """Write all records of some time in this epoch; return them in order."""
    found = []
    for key in KEYS:
        while (at := times.next_time(key, written[key] + 1)) < times.start_of(0) + length_ms:
            written[key] += 1
            found.append((at, key, written[key]))
    return sorted(found)


class Run:
    """The results of some epochs, as the test driver gives them."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.times = EventTimes(KEYS, keys_in(seed % PARTITIONS, PARTITIONS))
        self.results: list[Result] = []
        written = dict.fromkeys(KEYS, 0)
        with TopologyTestDriver(build(BASE, "no brake")) as driver:
            source = driver.create_input_topic("source")
            for epoch in range(EPOCHS):
                begin_ms = self.times.start_of(epoch) - self.times.start_of(0)
                for at, key, number in rows(
                    self.times, written, begin_ms + random.randrange(250, 700)
                ):
                    source.pipe_input(key, b"%d" % value_of(number), timestamp=at)
                self.times.begin_epoch(written, keys_in(epoch % PARTITIONS, PARTITIONS))
            begin_ms = self.times.start_of(EPOCHS) - self.times.start_of(0)
            for at, key, number in rows(self.times, written, begin_ms + SLOW_STEP_MS):
                source.pipe_input(key, b"%d" % value_of(number), timestamp=at)
            self.results = driver.create_output_topic("sink", serdes.bytes).read_key_values()

    def judge(self, results: list[Result]) -> DslLedger:
        ledger = DslLedger(KEYS, self.times, [b"lane"])
        for key, value in results:
            ledger.note(key, value)
        return ledger

    def tally(self, results: list[Result]) -> Tally:
        """Count what is wrong in lanes; pairs, which every pipeline has, are lost before."""
        found = self.judge(results).tally(NOTHING)
        return found._replace(lost=found.lost - DslLedger(KEYS, self.times, []).tally(NOTHING).lost)


@cache
def run() -> Run:
    return Run(1)


def changed(at: int, count: int, total: int) -> list[Result]:
    """Return the results with another one in the place of one of them."""
    key, value = run().results[at]
    _, _, start, counted, summed = value.split()
    result = b"dsl lane %s %d %d" % (start, int(counted) + count, int(summed) + total)
    return [*run().results[:at], (key, result), *run().results[at + 1 :]]


def test_ten_times_as_many_records_of_one_partition_cover_the_same_time() -> None:
    fast = keys_in(0, PARTITIONS)
    written = dict.fromkeys(KEYS, 0)
    times = EventTimes(KEYS, fast)
    found = rows(times, written, 10 * WINDOW_MS)
    assert {written[key] for key in fast} == {10 * WINDOW_MS // FAST_STEP_MS}
    assert {written[key] for key in KEYS if key not in fast} == {10 * WINDOW_MS // SLOW_STEP_MS}
    for key in KEYS:
        window = times.start_of(0) + 3 * WINDOW_MS
        numbers = [n for at, of, n in found if of == key and window <= at < window + WINDOW_MS]
        assert list(times.numbers_in(key, window, WINDOW_MS)) == numbers


def test_each_lane_has_keys_of_all_partitions() -> None:
    for partition in range(PARTITIONS):
        assert len({lane_of(key) for key in keys_in(partition, PARTITIONS)}) > 2


@pytest.mark.parametrize("seed", long_but_the_first(range(PARTITIONS)))
def test_what_the_driver_gives_is_clean(seed: int) -> None:
    made = Run(seed)
    assert made.tally(made.results) == Tally()
    assert made.judge(made.results).is_complete(NOTHING) is False
    assert not any("lane" in line for line in made.judge(made.results).losses(NOTHING))
    assert {key for key, _ in made.results} == {lane_of(key) for key in KEYS}


@pytest.mark.parametrize("at", long_but_the_first([0, 7, -1]))
def test_records_of_a_window_that_is_missing_are_lost(at: int) -> None:
    results = list(run().results)
    _, value = results.pop(at)
    count = int(value.split()[3])
    assert run().tally(results) == Tally(lost=count)
    assert any("without a result" in line for line in run().judge(results).losses(NOTHING))


def test_records_that_a_window_does_not_count_are_lost() -> None:
    assert run().tally(changed(5, -3, -17)) == Tally(lost=3)
    losses = run().judge(changed(5, -3, -17)).losses(NOTHING)
    assert any("left out of windows, the first in the window" in line for line in losses)


def test_records_that_a_window_counts_twice_are_repeated() -> None:
    assert run().tally(changed(5, 2, 17)) == Tally(repeated=2)


def test_a_window_with_another_sum_is_wrong_and_has_no_result() -> None:
    found = run().tally(changed(5, 0, 1))
    assert (found.wrong, found.repeated, found.reordered) == (1, 0, 0)
    assert found.lost == int(run().results[5][1].split()[3])


def test_a_window_that_comes_again_is_repeated() -> None:
    assert run().tally([*run().results, run().results[0]]) == Tally(repeated=1)


def test_windows_of_a_lane_in_another_order_are_reordered() -> None:
    results = list(run().results)
    first, second = [at for at, (key, _) in enumerate(results) if key == results[0][0]][:2]
    results[first], results[second] = results[second], results[first]
    assert run().tally(results) == Tally(reordered=1)


@pytest.mark.parametrize("value", [b"dsl lane 0 1 1", b"dsl lane 1 1", b"dsl lane x 1 1"])
def test_a_result_of_no_window_is_wrong(value: bytes) -> None:
    assert run().tally([*run().results, (b"lane0", value)]) == Tally(wrong=1)


def test_the_brake_holds_up_the_records_of_its_partition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_CREDIT_S", 0.0)
    file = tmp_path / "brake"
    file.write_text("0 20")
    with TopologyTestDriver(build(BASE, str(file))) as driver:
        source = driver.create_input_topic("source")
        began_s = time.monotonic()
        for number in range(1, 4):
            source.pipe_input(b"k00", b"%d" % value_of(number), timestamp=number)
        assert time.monotonic() - began_s >= 2 / 20
        assert passed_of(file).stat().st_size == 3
    file.write_text("1 0.001")
    with TopologyTestDriver(build(BASE, str(file))) as driver:
        source = driver.create_input_topic("source")
        for number in range(1, 4):
            source.pipe_input(b"k00", b"%d" % value_of(number), timestamp=number)
        assert passed_of(file).stat().st_size == 3

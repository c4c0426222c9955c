"""The judge of the DSL in the chaos harness: the test driver is right, all else is found."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from kafka_pipeline import serdes
from kafka_pipeline.testing import TopologyTestDriver
from tests.chaos.dsl_ledger import DslLedger
from tests.chaos.event_times import EPOCH_MS, STEP_MS, EventTimes
from tests.chaos.ledger import BASE, value_of
from tests.chaos.numbered_results import Tally
from tests.tiers import long_but_the_first
from tests.user_code.numbered import ORDERS_EVERY, RATES_EVERY, WINDOW_MS, build

KEYS = [b"k%02d" % number for number in range(6)]
EPOCHS = 3
Result = tuple[bytes, bytes]


class Run:
    """The results of some epochs, as the test driver gives them."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.times = EventTimes(KEYS)
        self.written = dict.fromkeys(KEYS, 0)
        self.results: list[Result] = []
        with TopologyTestDriver(build(BASE)) as driver:
            source = driver.create_input_topic("source")
            sink = driver.create_output_topic("sink", serdes.bytes)

            def write(keys: list[bytes]) -> None:
                for key in keys:
                    self.written[key] += 1
                    number = self.written[key]
                    time = self.times.next_time(key, number)
                    source.pipe_input(key, b"%d" % value_of(number), timestamp=time)

            source.pipe_input(b"poison", b"no number", timestamp=0)
            source.pipe_input(None, b"1", timestamp=0)
            for _ in range(EPOCHS):
                for _ in range(random.randrange(15, 35)):
                    write(random.sample(KEYS, len(KEYS)))
                self.times.begin_epoch(self.written)
                write(KEYS)
            self.results = sink.read_key_values()

    def tally(self, results: list[Result]) -> Tally:
        return self.judge(results).tally(self.written)

    def judge(self, results: list[Result]) -> DslLedger:
        ledger = DslLedger(KEYS, self.times, [kind.encode() for kind in KINDS])
        for key, value in results:
            ledger.note(key, value)
        return ledger

    def places(self, what: str) -> list[int]:
        """Return where the results of a kind are."""
        return [number for number, (_, value) in enumerate(self.results) if kind_of(value) == what]

    def place(self, what: str) -> int:
        """Return where a result of a kind is: one in the middle, or the last rate.

        Of the rates before the last one of a key, it is open how many come.
        """
        places = self.places(what)
        return places[-1 if what == "rate" else len(places) // 2]


def kind_of(value: bytes) -> str:
    return value.split()[1].decode()


@cache
def run() -> Run:
    return Run(1)


KINDS = ["count", "sum", "bucket", "join", "rate"]


@pytest.mark.parametrize("seed", long_but_the_first(range(3)))
def test_what_the_driver_gives_is_clean(seed: int) -> None:
    made = Run(seed)
    ledger = made.judge(made.results)
    assert ledger.tally(made.written) == Tally()
    assert ledger.is_complete(made.written)
    assert ledger.losses(made.written) == []
    assert {kind_of(value) for _, value in made.results} == set(KINDS)


@pytest.mark.parametrize("what", KINDS)
def test_a_missing_result_is_lost(what: str) -> None:
    at = run().place(what)
    results = run().results[:at] + run().results[at + 1 :]
    assert run().tally(results) == Tally(lost=1)
    (line,) = run().judge(results).losses(run().written)
    assert line.startswith(f"{what} of ")


@pytest.mark.parametrize("what", KINDS)
def test_results_without_the_last_one_of_a_kind_are_not_complete(what: str) -> None:
    at = run().places(what)[-1]
    results = run().results[:at] + run().results[at + 1 :]
    assert not run().judge(results).is_complete(run().written)


@pytest.mark.parametrize("what", KINDS)
def test_a_result_that_comes_twice_at_once_is_repeated(what: str) -> None:
    at = run().place(what)
    results = [*run().results[: at + 1], *run().results[at:]]
    assert run().tally(results) == Tally(repeated=1)


@pytest.mark.parametrize("what", [what for what in KINDS if what != "rate"])
def test_a_result_that_comes_again_in_the_end_is_repeated_and_not_reordered(what: str) -> None:
    results = [*run().results, run().results[run().places(what)[0]]]
    assert run().tally(results) == Tally(repeated=1)


def test_an_older_rate_after_a_newer_one_is_reordered_and_not_final() -> None:
    key, value = run().results[run().place("rate")]
    _, _, order, rate = value.split()
    older = b"dsl rate %s %d" % (order, int(rate) - RATES_EVERY)
    assert run().tally([*run().results, (key, older)]) == Tally(lost=1, reordered=1)


@pytest.mark.parametrize("what", KINDS)
def test_results_of_one_key_in_another_order_are_reordered(what: str) -> None:
    at = run().place(what)
    key, _ = run().results[at]
    results = list(run().results)
    before = [
        number
        for number, (of, former) in enumerate(results[:at])
        if of == key and kind_of(former) == what
    ][-1]
    results[before], results[at] = results[at], results[before]
    found = run().tally(results)
    assert found.reordered == 1
    assert found.wrong == 0


def assert_wrong(key: bytes | None, value: bytes) -> None:
    """Check that a result in addition to the others is wrong, and nothing else."""
    ledger = run().judge(run().results)
    ledger.note(key, value)
    assert ledger.tally(run().written) == Tally(wrong=1)
    (line,) = ledger.losses(run().written)
    assert line.startswith(f"wrong: {key!r}: {value!r}")


@pytest.mark.parametrize(
    "value",
    [
        b"dsl sum 0 1",
        b"dsl join 1 0",
        b"dsl join 3 3",
        b"dsl join 0 0",
        b"dsl join -3 0",
        b"dsl rate 5 8",
        b"dsl rate 4 7",
        b"dsl rate 0 0",
        b"dsl rate 4 -8",
        b"dsl rate x 1",
        b"dsl other 1 1",
        b"dsl count 1",
        b"dsl count 1 1 1",
    ],
)
def test_a_result_that_no_record_can_lead_to_is_wrong(value: bytes) -> None:
    assert_wrong(KEYS[0], value)


@pytest.mark.parametrize(
    ("what", "after_ms", "number"),
    [
        ("count", 0, 0),
        ("count", 0, WINDOW_MS // STEP_MS + 1),
        ("count", STEP_MS, 1),
        ("sum", STEP_MS, sum(range(2, 2 + WINDOW_MS // STEP_MS))),
        ("sum", EPOCH_MS - WINDOW_MS, 0),
    ],
)
def test_a_result_of_no_window_or_with_no_such_number_is_wrong(
    what: str, after_ms: int, number: int
) -> None:
    start = run().times.start_of(0) + after_ms
    assert_wrong(KEYS[0], b"dsl %s %d %d" % (what.encode(), start, number))


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("key", [b"k99", None])
def test_a_result_of_another_key_is_wrong(key: bytes | None, what: str) -> None:
    _, value = run().results[run().place(what)]
    assert_wrong(key, value)


@pytest.mark.parametrize("value", [b"dsl rate 4000 8", b"dsl rate 4 8000", b"dsl join 4000 4000"])
def test_a_result_of_a_record_that_nobody_has_written_is_wrong(value: bytes) -> None:
    assert run().tally([*run().results, (KEYS[0], value)]).wrong == 1


def test_a_window_with_another_sum_is_wrong_and_lost() -> None:
    at = run().place("sum")
    key, value = run().results[at]
    _, what, start, total = value.split()
    changed = b"dsl %s %s %d" % (what, start, int(total) - 1)
    results = [*run().results[:at], (key, changed), *run().results[at + 1 :]]
    assert run().tally(results) == Tally(lost=1, wrong=1)


def test_an_outage_ends_when_counts_and_pairs_of_all_keys_have_come() -> None:
    ledger = run().judge(run().results)
    before = {key: number - 1 for key, number in run().written.items()}
    assert ledger.behind(before) == []
    assert len(ledger.behind(run().written)) >= len(KEYS)


def test_results_that_wait_for_windows_to_close_do_not_prolong_an_outage() -> None:
    pairs = [
        (key, value)
        for key, value in run().results
        if not (kind_of(value) == "join" and value.endswith(b" 0"))
    ]
    assert len(pairs) < len(run().results)
    before = {key: number - 1 for key, number in run().written.items()}
    assert run().judge(pairs).behind(before) == []


def test_a_key_without_an_order_has_no_rate() -> None:
    few = dict.fromkeys(KEYS, ORDERS_EVERY - 1)
    enough = dict.fromkeys(KEYS, ORDERS_EVERY)
    nothing = run().judge([])
    assert not any("rate" in line for line in nothing.losses(few))
    assert any("rate" in line for line in nothing.losses(enough))
    assert any("rate" in line for line in run().judge(run().results).losses(few))

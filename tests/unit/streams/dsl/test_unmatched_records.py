"""Records of left and outer joins without a partner: when they go out, and what of."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from kafka_pipeline import windows
from kafka_pipeline.streams.dsl.packing import pack
from kafka_pipeline.testing import TopologyTestDriver
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.join_cases import Watching
from tests.unit.streams.dsl.running import builder, pipe
from tests.unit.streams.dsl.test_stream_joins import joiner

DAY_MS = 86_400_000
LEFT, RIGHT = "left", "right"
Given = tuple[str, str, str, int]
Numbers = tuple[int, int, int]


def found(method: str, numbers: Numbers, given: list[Given]) -> list[list[str]]:
    """Return the results of each record."""
    before_ms, after_ms, grace_ms = numbers
    window = windows.join(before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms)
    built, results, each = builder(), list[str](), list[list[str]]()
    left, right = built.stream(LEFT), built.stream(RIGHT)
    joined = getattr(left, method)(right, joiner, window, name="Joined")
    joined.process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        for record in given:
            pipe(driver, [record])
            each.append(results.copy())
            results.clear()
    return each


@pytest.mark.parametrize("method", ["left_join", "outer_join"])
def test_a_record_waits_as_long_as_the_window_of_its_own_side(method: str) -> None:
    """KAFKA-15417."""
    given = [(LEFT, "a", "l", 10), (RIGHT, "b", "r", 11)]
    assert found(method, (100, 0, 0), given) == [[], ["a=l+null@10"]]
    assert found(method, (DAY_MS, 0, 0), given) == [[], ["a=l+null@10"]]
    given = [(LEFT, "a", "l", 10), (RIGHT, "b", "r", 110), (RIGHT, "b", "r", 111)]
    first, second, third = found(method, (0, 100, 0), given)
    assert "a=l+null@10" not in [*first, *second]
    assert "a=l+null@10" in third


def test_a_right_record_waits_as_long_as_its_own_window() -> None:
    given = [(RIGHT, "a", "r", 10), (LEFT, "b", "l", 11), (LEFT, "b", "l", 12)]
    assert found("outer_join", (0, 100, 0), given)[1] == ["a=null+r@10"]
    late = [*given[:1], (LEFT, "b", "l", 110), (LEFT, "b", "l", 111)]
    assert "a=null+r@10" not in found("outer_join", (100, 0, 0), late)[1]
    assert "a=null+r@10" in found("outer_join", (100, 0, 0), late)[2]


def test_many_records_that_wait_longer_hold_none_back() -> None:
    given = [(RIGHT, f"k{time}", "r", time) for time in range(100, 130)]
    given += [(LEFT, "a", "l", 130), (RIGHT, "b", "r", 131)]
    assert found("outer_join", (DAY_MS, 0, 0), given)[-2:] == [[], ["a=l+null@130"]]


def test_an_earlier_record_does_not_wait_for_a_later_one() -> None:
    given = [(LEFT, "a", "l", 10), (LEFT, "b", "l", 15), (LEFT, "c", "l", 19)]
    given += [(LEFT, "d", "l", 21), (LEFT, "e", "l", 26)]
    expected = [[], [], [], ["a=l+null@10"], ["b=l+null@15"]]
    assert found("left_join", (10, 10, 0), given) == expected


def test_a_late_record_waits_for_a_partner_within_the_grace_period() -> None:
    given = [(RIGHT, "b", "r", 100), (LEFT, "a", "l", 85), (RIGHT, "a", "r", 80)]
    assert found("left_join", (10, 0, 20), given) == [[], [], ["a=l+r@85"]]
    assert found("left_join", (10, 0, 10), given[:2]) == [[], ["a=l+null@85"]]


def test_a_window_before_time_0_has_no_records() -> None:
    given = [(RIGHT, "a", "r", 0), (LEFT, "a", "l", 5)]
    assert found("join", (100, -10, 0), given) == [[], []]
    assert found("left_join", (100, -10, 0), given) == [[], ["a=l+null@5"]]


def test_records_are_kept_until_the_last_partner_can_come() -> None:
    far = [(RIGHT, "a", "r", 10), (RIGHT, "b", "r", 105), (LEFT, "a", "l", 106)]
    assert found("join", (100, -10, 0), far)[-1] == ["a=l+r@106"]
    last = [(RIGHT, "a", "r", 10), (RIGHT, "b", "r", 120), (LEFT, "a", "l", 110)]
    assert found("join", (100, 0, 10), last)[-1] == ["a=l+r@110"]


@dataclass
class Model:
    """What joins of streams are to give, with all records at hand."""

    keeps: tuple[bool, bool]
    numbers: Numbers
    now: int = -1
    seen: list[tuple[int, str, str, int]] = field(default_factory=list)
    alone: list[tuple[int, int, str, str]] = field(default_factory=list)

    def results(self, topic: str, key: str, value: str, time: int) -> list[str]:
        """Take a record; return its results."""
        before, after, grace = self.numbers
        side = 0 if topic == LEFT else 1
        self.now = max(self.now, time)
        given = []
        if time == self.now:
            waits = (after + grace, before + grace)
            for each in sorted(self.alone, key=lambda alone: alone[:3]):
                at, number, owner, text = each
                if at + waits[1 - number] < self.now:
                    alone = joiner(text, None) if number else joiner(None, text)
                    given.append(f"{owner}={alone}@{at}")
                    self.alone.remove(each)
        met = [
            (at, text)
            for other, owner, text, at in self.seen
            if other != side
            and owner == key
            and -before <= (at - time) * (1 if side == 0 else -1) <= after
        ]
        for at, text in sorted(met, key=lambda each: each[0]):
            joined = joiner(value, text) if side == 0 else joiner(text, value)
            given.append(f"{key}={joined}@{max(at, time)}")
        met_times = {at for at, _ in met}
        self.alone = [
            each
            for each in self.alone
            if not (each[1] == side and each[2] == key and each[0] in met_times)
        ]
        if not met and self.keeps[side]:
            if time + (after, before)[side] + grace < self.now:
                alone = joiner(value, None) if side == 0 else joiner(None, value)
                given.append(f"{key}={alone}@{time}")
            else:
                self.alone.append((time, 1 - side, key, value))
        self.seen.append((side, key, value, time))
        return given


BOUNDS = [(5, 5), (20, 0), (0, 20), (20, -3), (-3, 20), (0, 0), (4, 9)]


@pytest.mark.parametrize("seed", long_but_the_first(range(6), 2))
@pytest.mark.parametrize("grace_ms", [0, 7])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_results_are_those_of_a_model(bounds: tuple[int, int], grace_ms: int, seed: int) -> None:
    random = Random(f"{bounds} {grace_ms} {seed}")
    now, given = 0, list[Given]()
    for number in range(120):
        now += random.choice((0, 0, 1, 1, 2, 5, 15))
        time = max(0, now - random.randint(0, grace_ms))
        side, key = random.choice((LEFT, RIGHT)), random.choice("abc")
        given.append((side, key, f"v{number}", time))
    for method, keeps in (("left_join", (True, False)), ("outer_join", (True, True))):
        model = Model(keeps, (*bounds, grace_ms))
        expected = [model.results(*each) for each in given]
        assert found(method, (*bounds, grace_ms), given) == expected


def test_records_that_were_kept_without_headers_are_read() -> None:
    """As versions before headers were kept wrote them: a list of values."""
    built, results = builder(), list[str]()
    window = windows.join(before_ms=5, after_ms=5, grace_ms=0)
    left, right = built.stream(LEFT), built.stream(RIGHT)
    left.left_join(right, joiner, window, name="Joined").process(partial(Watching, results))
    with TopologyTestDriver(built) as driver:
        store = driver.get_key_value_store("Joined-unmatched")
        pipe(driver, [(LEFT, "a", "one", 3), (LEFT, "a", "two", 3)])
        ((place, items),) = store.all()
        assert pack(items) == pack([b"one", b"two"])
        assert place[-1:] == b"a"
        pipe(driver, [(LEFT, "b", "x", 9)])
        assert results == ["a=one+null@3", "a=two+null@3"]

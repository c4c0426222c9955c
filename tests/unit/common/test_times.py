"""Times, counted by how long they were."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.monitoring.times import BOUNDS_S, TimeCounter, Times
from kafka_pipeline.common.typed_json import as_json, from_json


def test_a_time_counts_up_to_the_bound_that_it_does_not_exceed() -> None:
    counter = TimeCounter()
    for seconds in (0.001, 0.0011, 31.0):
        counter.add(seconds)
    counts = dict(counter.times.up_to())
    assert counts[0.001] == 1
    assert counts[0.0025] == counts[30.0] == 2
    assert counts[float("inf")] == 3
    assert counter.times.sum_us == 31_002_100


def test_times_that_were_taken_do_not_change_later() -> None:
    counter = TimeCounter()
    before = counter.times
    counter.add(1)
    assert before == Times()
    assert counter.times != before


def test_times_come_back_from_json_as_they_were() -> None:
    counter = TimeCounter()
    counter.add(0.2)
    assert from_json(Times, as_json(counter.times), "times") == counter.times


@pytest.mark.parametrize("counts", [[1], [0] * (len(BOUNDS_S) + 2), [-1] * (len(BOUNDS_S) + 1)])
def test_times_of_another_version_are_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"Expected `(array|int)` .* at `\$.counts"):
        from_json(Times, {"counts": counts, "sum_us": 0}, "times")

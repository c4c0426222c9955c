"""The report of a run of the fault harness."""

from __future__ import annotations

import threading

import pytest

from tests.chaos import report
from tests.chaos.numbered_results import Tally
from tests.chaos.report import Row, StandstillWatch, Timeline, table


class FrozenTime:
    """A clock that goes on by more than a sleeper asked for."""

    def __init__(self, extra: list[float]) -> None:
        self._extra = extra
        self._now = 100.0
        self.is_over = threading.Event()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        if not self._extra:
            self.is_over.set()
            threading.Event().wait()
        self._now += seconds + self._extra.pop(0)


def test_a_machine_that_stands_still_is_told_with_the_time_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen = FrozenTime([0.0, 10.0, 0.5, 8.7])
    monkeypatch.setattr(report, "time", frozen)
    timeline = Timeline()
    watch = StandstillWatch(timeline)
    assert frozen.is_over.wait(10)
    assert watch.seconds == pytest.approx(18.7)
    told = [line.partition(" s  ")[2] for line in timeline.lines]
    assert told == [f"the machine stood still for {seconds} s" for seconds in (10.0, 8.7)]


def test_table_tells_for_how_long_the_machine_stood_still() -> None:
    quiet, noisy = Row("cut-link"), Row("kill-worker")
    quiet.add(Tally(), [2.0, 4.0])
    noisy.add(Tally(), [30.0])
    noisy.still_s = 18.7
    noisy.failures.append("records do not flow again")
    lines = table([quiet, noisy]).splitlines()
    assert lines[2] == "| cut-link | 1 | 0 | 0 | 0 | 0 | 0 | 3.0 s | 4.0 s |  |"
    assert lines[3] == "| kill-worker | 1 | 1 | 0 | 0 | 0 | 0 | 30.0 s | 30.0 s | 19 s |"
    assert {line.count("|") for line in lines} == {11}
    assert noisy.to_json()["machine_stood_still_s"] == 18.7

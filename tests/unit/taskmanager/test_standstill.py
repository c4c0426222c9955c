"""When a task is held back in event time, and when that is warned of."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.writer_progress import Holder
from kafka_pipeline.taskmanager.running_task import EventTime
from kafka_pipeline.taskmanager.standstill import HELD_AFTER_MS, WARN_AFTER_MS, Standstill

IDLE_AFTER_MS = 3000
COMMIT_INTERVAL_MS = 100
GRACE_MS = HELD_AFTER_MS + COMMIT_INTERVAL_MS
STOPPED = Holder(TaskId("Payments", 2), 5000, 12_400)
NOT_ASKED = STOPPED._replace(unread=None)
READ = STOPPED._replace(unread=0)


class Rig:
    """A task at an event time, and those that may hold it back."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.standstill = Standstill(IDLE_AFTER_MS, COMMIT_INTERVAL_MS)

    def look(
        self,
        *holders: Holder,
        after_ms: int = 0,
        time: tuple[int, int] = (5000, 9000),
        is_caught_up: bool = True,
    ) -> Holder | None:
        self.now_ms += after_ms
        at = EventTime(*time)
        self.standstill.look(at, holders, self.now_ms, is_caught_up=is_caught_up)
        return self.standstill.holder

    @property
    def is_idle(self) -> bool:
        return bool(self.standstill.figures()["is_idle"])


@pytest.mark.parametrize("holder", [STOPPED, NOT_ASKED])
def test_event_time_that_stands_for_seconds_is_held_back_by_who_is_least_far(
    holder: Holder,
) -> None:
    rig, other = Rig(), Holder(TaskId("Payments", 0), 8000, 7)
    assert rig.look(holder, other) is None
    assert rig.look(holder, other, after_ms=GRACE_MS - 1) is None
    assert rig.look(holder, other, after_ms=1) == holder


def test_event_time_that_moves_is_not_held_back() -> None:
    rig = Rig()
    for step in range(20):
        time_ms = 5000 + step // 4
        held = rig.look(STOPPED, after_ms=1000, time=(time_ms, 9000))
        assert held is None


def test_records_that_are_read_before_event_time_goes_on_change_nothing() -> None:
    rig = Rig()
    held = [rig.look(STOPPED, after_ms=1000, time=(5000, 9000 + step)) for step in range(8)]
    assert held[0] is None
    assert held[-1] == STOPPED


def test_who_has_read_everything_holds_back_only_if_it_does_not_become_idle() -> None:
    rig = Rig()
    rig.look(READ)
    assert rig.look(READ, after_ms=GRACE_MS + IDLE_AFTER_MS - 1) is None
    assert rig.look(READ, after_ms=1) == READ


def test_a_task_that_has_not_taken_in_how_far_others_are_is_not_held_back_by_them() -> None:
    rig, further = Rig(), STOPPED._replace(time_ms=5001)
    rig.look(further, is_caught_up=False)
    assert rig.look(further, after_ms=60_000, is_caught_up=False) is None


def test_a_new_job_waits_at_an_unknown_time() -> None:
    rig, new = Rig(), STOPPED._replace(time_ms=-1)
    rig.look(new, time=(-1, -1))
    assert rig.look(new, after_ms=GRACE_MS, time=(-1, -1)) == new
    assert rig.standstill.figures() == {"is_idle": 0, "held_unread": 12_400}


def test_a_task_is_idle_if_nothing_is_to_come_and_its_figures_stay_as_they_are() -> None:
    rig = Rig()
    rig.look(is_caught_up=False)
    assert not rig.is_idle
    rig.look(after_ms=IDLE_AFTER_MS, is_caught_up=False)
    assert not rig.is_idle
    rig.look(after_ms=1)
    assert rig.is_idle
    figures = rig.standstill.figures()
    for _ in range(3):
        rig.look(after_ms=60_000)
        assert rig.standstill.figures() == figures
    rig.look(time=(5000, 9001))
    assert not rig.is_idle


@pytest.mark.parametrize("time", [(-1, -1), (5000, 9000)])
def test_who_waits_for_others_or_knows_nothing_is_not_idle(time: tuple[int, int]) -> None:
    rig = Rig()
    holders = [] if time[0] < 0 else [READ]
    rig.look(*holders, time=time)
    rig.look(*holders, after_ms=60_000, time=time)
    assert not rig.is_idle


def test_a_task_that_does_not_run_keeps_its_time_and_is_held_back_by_nobody() -> None:
    rig = Rig()
    rig.look(STOPPED)
    rig.look(STOPPED, after_ms=GRACE_MS)
    rig.standstill.end()
    assert rig.standstill.holder is None
    figures = {"is_idle": 0, "event_time_ms": 5000, "newest_record_ms": 9000}
    assert rig.standstill.figures() == figures
    # Its next start counts anew.
    assert rig.look(STOPPED) is None


def test_warnings_come_after_a_minute_and_once_a_minute() -> None:
    rig, warned = Rig(), []
    for second in range(200):
        rig.look(STOPPED, after_ms=1000)
        if rig.standstill.warns_of(rig.now_ms) == STOPPED:
            warned.append(second)
    first = WARN_AFTER_MS // 1000 + 1
    assert warned == [first, first + 60, first + 120]


def test_nothing_is_warned_of_once_event_time_goes_on() -> None:
    rig = Rig()
    rig.look(STOPPED)
    rig.look(STOPPED, after_ms=WARN_AFTER_MS + 1)
    rig.look(STOPPED, time=(5001, 9000))
    assert rig.standstill.warns_of(rig.now_ms) is None

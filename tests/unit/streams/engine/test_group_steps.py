"""The steps of a task: when one ends, and when the next one has something to do."""

from __future__ import annotations

import pytest

from kafka_pipeline import Cancellable, ProcessorContext, PunctuationType, Record
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.group_task import StepResult
from tests.unit.streams.nodes import Each, Tasks, batch, calling, chain, starting

FAIL = GroupSettings()
SKIP = GroupSettings(on_error=OnError.SKIP)


def test_waiting_records_are_counted_by_partition() -> None:
    task = Tasks(chain(Each, topics=["a", "b"]), FAIL)
    task.task.add(batch([b"1", b"2"], topic="a"))
    assert (task.task.waiting(("a", 0)), task.task.waiting(("b", 0))) == (2, 0)
    task.task.step(0, task.partitions)
    assert task.task.waiting(("a", 0)) == 0


def test_a_task_whose_records_wait_for_another_input_is_to_be_woken_when_that_is_over() -> None:
    task = Tasks(chain(Each, topics=["a", "b"]), GroupSettings(max_task_idle_ms=100))
    assert task.task.wake_in_ms(0) is None
    task.task.add(batch([b"1"], topic="a"))
    task.task.step(0, {})
    assert task.task.wake_in_ms(0) is None, "the end of the other one is not known"
    task.task.step(5, task.partitions)
    assert task.task.wake_in_ms(40) == 65
    task.task.step(105, task.partitions)
    assert task.task.wake_in_ms(105) is None


def test_a_task_is_to_be_woken_when_something_is_due_by_the_wall_clock() -> None:
    handles: list[Cancellable] = []
    wall_clock = PunctuationType.WALL_CLOCK_TIME
    schedule = starting(lambda c: handles.append(c.schedule(10, wall_clock, lambda time: None)))
    task = Tasks(chain(schedule), FAIL)
    due_ms = task.clock.now_ms + 10
    assert task.task.wake_in_ms(0) == 10
    task.clock.now_ms = due_ms + 5
    assert task.task.wake_in_ms(0) == 0
    handles[0].cancel()
    assert task.task.wake_in_ms(0) is None


def test_a_step_ends_after_the_record_whose_processor_asked_for_a_commit() -> None:
    task = Tasks(chain(calling(commit_at_b)), FAIL)
    task.task.add(batch([b"a", b"b", b"c"]))
    assert task.task.step(0, task.partitions) == StepResult(True, True)
    assert task.task.position(("in", 0)) == 2
    assert task.task.step(0, task.partitions) == StepResult(False, False)
    assert task.task.position(("in", 0)) == 3


def commit_at_b(context: ProcessorContext, record: Record) -> None:
    if record.value == b"b":
        context.commit()


@pytest.mark.parametrize("settings", [FAIL, SKIP], ids=["good", "bad"])
def test_a_step_ends_after_the_record_during_which_its_time_was_up(
    settings: GroupSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether that record is good or bad; and one record is processed at least."""
    now_s = [0.0]

    def work(context: ProcessorContext, record: Record) -> None:
        now_s[0] += 1
        if settings is SKIP:
            raise ValueError("no good")

    for module in ("runtime.monotonic", "group_task.time.monotonic"):
        monkeypatch.setattr(f"kafka_pipeline.streams.engine.{module}", lambda: now_s[0])
    task = Tasks(chain(calling(work)), settings)
    task.task.add(batch([b"1"] * 6))
    reached = []
    for until_s in (3.0, 3.5, 4.0, 99.0):
        has_more = task.task.step(0, task.partitions, until_s).has_more
        reached.append((task.task.position(("in", 0)), has_more))
    assert reached == [(3, True), (4, True), (5, True), (6, False)]

"""Event time in `pipeline status` and `pipeline top`: who is where, and who waits for whom."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from kafka_pipeline.admin.top import TopView
from kafka_pipeline.common.cluster.cluster_status import Beat, ClusterStatus
from kafka_pipeline.common.protocol.messages import JobManagerBeat
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from tests.unit.admin.beats import NOW_MS, leader, look, report, rows, running

AT_MS = 1_795_000_000_000
"""2026-11-18 11:06:40 UTC."""
PAYMENTS = [TaskId("Payments", number) for number in range(3)]
COUNTS = [TaskId("Counts", number) for number in range(2)]
OWNERS: dict[TaskId, int | None] = dict.fromkeys([*PAYMENTS, *COUNTS], 0)
HELD = {"event_time_ms": AT_MS, "newest_record_ms": AT_MS + 90_000, "held_unread": 12_400}


def waiting(task: TaskId, **figures: int) -> TaskStatus:
    return replace(running(task, **HELD | figures), held_by=PAYMENTS[2])


def failed(task: TaskId) -> TaskStatus:
    return TaskStatus(task, TaskState.FAILED, "no number", figures={"event_time_ms": AT_MS})


def writers() -> list[TaskStatus]:
    times = {"event_time_ms": AT_MS + 90_000, "newest_record_ms": AT_MS + 90_000}
    return [running(PAYMENTS[0], **times), running(PAYMENTS[1], is_idle=1, event_time_ms=5)]


def stopped() -> ClusterStatus:
    tasks = [*writers(), failed(PAYMENTS[2]), *map(waiting, COUNTS)]
    return look(leader(OWNERS), report(0, *tasks))


def top(found: ClusterStatus) -> list[str]:
    console = Console(width=140)
    with console.capture() as capture:
        console.print(TopView(False, 1000).update(found))
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_status_and_top_say_who_waits_for_whom() -> None:
    said = "Counts waits at 2026-11-18 11:06:40 UTC for Payments_2 (FAILED, 12,400 unread)"
    assert rows(stopped())[-2:] == ["Payments_2: no number", said]
    assert said in top(stopped())


def test_tasks_are_named_if_others_of_their_processor_do_not_wait() -> None:
    tasks = [*writers(), failed(PAYMENTS[2]), waiting(COUNTS[0]), running(COUNTS[1])]
    assert rows(look(leader(OWNERS), report(0, *tasks)))[-1].startswith("Counts_0 waits at ")
    many = [TaskId("Counts", number) for number in range(7)]
    owners = dict.fromkeys([*PAYMENTS, *many], 0)
    found = look(leader({**owners}), report(0, failed(PAYMENTS[2]), *map(waiting, many[:6])))
    named = "Counts_0, Counts_1, Counts_2, Counts_3, Counts_4 and 1 more wait at "
    assert any(row.startswith(named) for row in rows(found))


def test_who_is_paused_or_has_no_owner_is_said_and_so_is_what_nobody_knows() -> None:
    held = TaskStatus(COUNTS[0], TaskState.RUNNING, held_by=PAYMENTS[2])
    owners: dict[TaskId, int | None] = {COUNTS[0]: 0, PAYMENTS[2]: None}
    paused = Beat(NOW_MS, JobManagerBeat(7, NOW_MS, owners, held=frozenset({"Payments"})))
    said = "Counts waits for Payments_2 (paused, unread unknown)"
    assert said in rows(look(paused, report(0, held)))
    said = "Counts waits for Payments_2 (no TaskManager runs it, unread unknown)"
    assert said in rows(look(leader(owners), report(0, held)))
    said = "Counts waits for Payments_2 (its TaskManager is not there, unread unknown)"
    assert said in rows(look(leader({**owners, PAYMENTS[2]: 1}), report(0, held)))


def test_each_processor_has_its_event_time_and_how_far_it_is_behind() -> None:
    shown = rows(stopped())
    assert "processor event time behind" in shown
    # A task for which nothing is to come does not count, one that FAILED does.
    assert "Payments 2026-11-18 11:06:40 UTC 90 s" in shown
    assert "Counts 2026-11-18 11:06:40 UTC 90 s" in shown


def test_late_records_are_counted_by_processor_with_those_of_the_last_minute() -> None:
    first, second = waiting(COUNTS[0], late=3), waiting(COUNTS[1], late=1200, late_per_minute=7)
    found = look(leader(OWNERS), report(0, first, second))
    assert "Counts 2026-11-18 11:06:40 UTC 90 s 1,203 (+7/min)" in rows(found)


def test_status_and_top_say_what_was_left_out_and_why() -> None:
    """Not only the late records of steps with event time: whatever is lost is visible."""
    first = replace(running(COUNTS[0]), dropped={"expired": 20_930, "null key": 3})
    lately = {"expired (late_to)": 7}
    second = replace(running(COUNTS[1]), dropped={"expired (late_to)": 12}, dropped_lately=lately)
    found = look(leader(OWNERS), report(0, first, second))
    said = (
        "Counts left 20,945 records out of its results: expired 20,930, "
        "expired (late_to) 12 (+7/min), null key 3"
    )
    assert rows(found)[-1] == said
    assert said in top(found)
    assert any(
        line.startswith("Counts 2 of 2") and "20,945 (+7/min)" in line for line in top(found)
    )
    assert not any("left" in row for row in rows(look(leader(OWNERS), report(0, *writers()))))


def test_nothing_is_shown_of_a_job_without_records() -> None:
    assert not any("event time" in row for row in rows(look(leader(OWNERS), report(0))))


def test_a_job_whose_tasks_are_all_there_says_nothing_of_waits() -> None:
    found = look(leader(OWNERS), report(0, *writers()))
    assert not any("wait" in row for row in [*rows(found), *top(found)])

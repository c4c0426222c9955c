"""Reports contain the changes, and everything now and then; readers may miss some of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.protocol.messages import (
    FULL_BEATS,
    Heartbeat,
    Report,
    ReportRequest,
    Sos,
    Threads,
)
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.taskmanager.reporter import Reporter
from tests.unit.taskmanager.host import EPOCH, Host, running_host, task

IDENTITY = Report(1, "me", 2, 0)
INTERVAL_MS = 1000


def status(number: int, state: TaskState = TaskState.RUNNING, records_in: int = 0) -> TaskStatus:
    return TaskStatus(
        TaskId("P", number), state, fingerprint="f", figures={"records_in": records_in}
    )


def everything(statuses: Iterable[TaskStatus]) -> Report:
    return replace(IDENTITY, tasks=tuple(statuses))


def raw(host: Host, after_ms: int) -> Report:
    """Return the report of the next tick as it is sent."""
    host.now_ms += after_ms
    (said,) = host.state.handle(Tick(host.now_ms))
    assert isinstance(said, Threads | Heartbeat)
    return said.report


def test_what_has_not_changed_is_not_repeated() -> None:
    reporter = Reporter(INTERVAL_MS)
    first = reporter.heartbeat(everything(map(status, range(5))), 0)
    assert (first.base, len(first.tasks)) == (None, 5)
    changed = [status(0, TaskState.FAILED), *map(status, range(2, 6))]
    second = reporter.heartbeat(everything(changed), 1000)
    assert second.base == first.beat
    assert second.tasks == (status(0, TaskState.FAILED), status(5))
    assert second.closed == (TaskId("P", 1),)


def test_what_is_acted_on_is_repeated_until_the_next_full_report_and_figures_are_not() -> None:
    reporter = Reporter(INTERVAL_MS)
    reporter.heartbeat(everything(map(status, range(5))), 0)
    now = [status(0, TaskState.FAILED), status(1, records_in=7), *map(status, range(2, 5))]
    assert reporter.heartbeat(everything(now), 1000).tasks == tuple(now[:2])
    assert reporter.heartbeat(everything(now), 2000).tasks == (now[0],)


def test_task_that_is_as_it_was_at_first_again_is_said_so() -> None:
    """A reader may have read the report in between."""
    reporter = Reporter(INTERVAL_MS)
    before = list(map(status, range(5)))
    reporter.heartbeat(everything(before), 0)
    reporter.heartbeat(everything([status(0, TaskState.STARTING), *before[1:]]), 100)
    assert reporter.heartbeat(everything(before), 200).tasks == (before[0],)
    reporter.heartbeat(everything([*before, status(9)]), 300)
    assert reporter.heartbeat(everything(before), 400).closed == (TaskId("P", 9),)


def test_full_report_comes_every_few_heartbeats() -> None:
    reporter = Reporter(INTERVAL_MS)
    said = [
        reporter.heartbeat(everything(map(status, range(5))), now_ms)
        for now_ms in range(0, 11 * INTERVAL_MS, INTERVAL_MS)
    ]
    full = [index for index, report in enumerate(said) if report.base is None]
    assert full == [0, FULL_BEATS, 2 * FULL_BEATS]


def test_report_in_which_nearly_all_has_changed_is_a_full_one() -> None:
    reporter = Reporter(INTERVAL_MS)
    reporter.heartbeat(everything(map(status, range(5))), 0)
    report = reporter.heartbeat(everything([status(0)]), 100)
    assert (report.base, report.tasks) == (None, (status(0),))


states = st.sampled_from([TaskState.STARTING, TaskState.RUNNING, TaskState.FAILED])
lists = st.dictionaries(st.integers(0, 5), st.tuples(states, st.integers(0, 2)), max_size=6)
turns = st.lists(
    st.tuples(lists, st.sampled_from([0, 50, 1000]), st.booleans(), st.booleans()), max_size=20
)


@given(turns)
def test_reader_who_misses_reports_never_has_a_wrong_picture(
    lived: list[tuple[dict[int, tuple[TaskState, int]], int, bool, bool]],
) -> None:
    """Each turn: what runs, time that passes, whether a full report is wanted, whether it is lost.

    What comes is doubled, and comes late after others.
    """
    reporter, reported, now_ms = Reporter(INTERVAL_MS), ReportedTasks(), 0
    truth: dict[int, dict[TaskId, tuple[TaskState, str]]] = {}
    arrived: list[Report] = []
    for runs, after_ms, wanted, lost in lived:
        now_ms += after_ms
        if wanted:
            reporter.require_full()
        statuses = [status(n, state, figure) for n, (state, figure) in runs.items()]
        report = reporter.heartbeat(everything(statuses), now_ms)
        truth[report.beat] = {s.task: (s.state, s.fingerprint) for s in statuses}
        if not lost:
            arrived.append(report)
            for again in (report, arrived[0], arrived[len(arrived) // 2]):
                taken = reported.take(again)
                assert taken <= (reported.beat == again.beat)
            shown = {s.task: (s.state, s.fingerprint) for s in reported.tasks.values()}
            assert shown == truth.get(reported.beat, {})
            if report.base is None:
                assert reported.beat == report.beat


def test_first_heartbeat_after_an_introduction_is_full() -> None:
    """Readers of heartbeats alone do not see introductions."""
    host = running_host(assign=range(4))
    raw(host, 1000)
    assert raw(host, 1000).base is not None
    host.state.handle(Sos(EPOCH + 1))
    introduction, heartbeat, next_one = (raw(host, ms) for ms in (0, 1000, 1000))
    assert introduction.base is None
    assert heartbeat.base is None
    assert next_one.base == heartbeat.beat


def test_full_report_comes_at_once_when_the_job_manager_asks_for_it() -> None:
    host = running_host(assign=range(4))
    raw(host, 1000)
    assert raw(host, 1000).base is not None
    host.state.handle(ReportRequest(3, "me", EPOCH))
    report = raw(host, 50)
    assert report.base is None
    assert {s.task for s in report.tasks} == set(map(task, range(4)))


def test_request_of_an_older_epoch_or_for_somebody_else_is_ignored() -> None:
    host = running_host(assign=range(4))
    raw(host, 1000)
    for request in (ReportRequest(3, "me", EPOCH - 1), ReportRequest(3, "other", EPOCH)):
        assert host.turn(request) == []
    assert raw(host, 1000).base is not None

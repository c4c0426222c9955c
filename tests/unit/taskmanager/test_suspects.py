"""A task that was in a call when its worker ended: it gets a worker of its own, and is judged."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.protocol.suspects import CallKind, Death, Suspect
from kafka_pipeline.taskmanager.events import (
    AssignTask,
    LaunchThread,
    RevokeTask,
    StopThread,
    TaskClosed,
    ThreadConnected,
    ThreadDied,
    ThreadEnding,
    ThreadLost,
    ThreadReported,
    ThreadStopped,
)
from kafka_pipeline.taskmanager.state import CALM_MS
from tests.unit.taskmanager.host import EPOCH, Host, others, replica, running_host, task

CALL = Suspect(CallKind.PROCESS, "in", 0, 7, 7)
RANGE = Suspect(CallKind.PROCESS, "in", 0, 0, 14)
DEATH = Death("SIGSEGV", ((task(0), RANGE),))
EXACT = Death("SIGSEGV", ((task(0), CALL),))
SPARE = 1


def host_of_two() -> Host:
    """A TaskManager with one thread, one spare, and the tasks 0 and 1."""
    return running_host(threads=1, assign=[0, 1], spares=1)


def suspected(*found: Suspect) -> AssignTask:
    return AssignTask(SPARE, replace(replica(0), suspects=found), EPOCH)


def test_task_in_the_call_gets_a_worker_of_its_own_and_its_siblings_go_on() -> None:
    host = host_of_two()
    assert others(host.take(ThreadDied(0, DEATH, goes_on=True))) == [LaunchThread(SPARE)]
    assert others(host.take(ThreadConnected(0))) == [AssignTask(0, replica(1), EPOCH)]
    assert others(host.take(ThreadConnected(SPARE))) == [suspected(RANGE)]
    first, second = host.report().tasks
    assert (first.thread, second.thread) == (SPARE, 0)
    assert first.suspects == (RANGE,)
    why = "its PipelineThread died (SIGSEGV, during P_0 in `process` of in[0]@0 to 14)"
    assert first.reason.startswith(why)
    assert first.reason.endswith("; it has a worker of its own for now")
    assert second.reason == f"{why}, and is started again"


def test_worker_that_is_not_replaced_is_launched_at_once() -> None:
    host = host_of_two()
    host.take(ThreadDied(0, DEATH))
    assert others(host.take(ThreadLost(0))) == [LaunchThread(SPARE)]
    assert others(host.tick()) == [LaunchThread(0)]


def test_second_death_at_the_record_is_a_verdict_for_the_next_worker() -> None:
    host = host_of_two()
    host.take(ThreadDied(0, DEATH, goes_on=True), ThreadConnected(0), ThreadConnected(SPARE))
    host.take(ThreadDied(SPARE, EXACT, goes_on=True))
    verdict = replace(CALL, verdict="SIGSEGV")
    assert others(host.take(ThreadConnected(SPARE))) == [suspected(verdict)]
    assert host.report().tasks[0].suspects == (CALL,)


def test_suspect_whose_worker_lives_long_goes_home_and_the_spare_ends() -> None:
    host = host_of_two()
    host.take(ThreadDied(0, DEATH, goes_on=True), ThreadConnected(0), ThreadConnected(SPARE))
    running = TaskStatus(task(0), TaskState.RUNNING, thread=SPARE)
    host.take(ThreadReported(SPARE, (running,)))
    assert others(host.tick(CALM_MS - 1000)) == []
    host.take(ThreadReported(0, ()), ThreadReported(SPARE, ()))
    assert others(host.tick(1000)) == [RevokeTask(SPARE, task(0))]
    assert others(host.take(TaskClosed(SPARE, task(0)))) == [AssignTask(0, replica(0), EPOCH)]
    assert others(host.tick()) == [StopThread(SPARE)]
    host.take(ThreadLost(SPARE), ThreadStopped(SPARE))
    assert others(host.tick(60_000)) == []
    assert [status.suspects for status in host.report().tasks] == [(), ()]
    assert len(host.report().thread_states) == 1


def test_suspect_that_has_failed_stays_where_it_is() -> None:
    host = host_of_two()
    host.take(ThreadDied(0, DEATH, goes_on=True), ThreadConnected(0), ThreadConnected(SPARE))
    host.take(ThreadReported(SPARE, (TaskStatus(task(0), TaskState.FAILED, thread=SPARE),)))
    host.take(ThreadReported(0, ()))
    assert RevokeTask(SPARE, task(0)) not in host.tick(CALM_MS)


def test_worker_that_ends_itself_accuses_nobody() -> None:
    host = host_of_two()
    host.take(ThreadEnding(0, "a commit does not end"), ThreadDied(0, DEATH), ThreadLost(0))
    assert others(host.tick()) == [LaunchThread(0)]
    assert [status.suspects for status in host.report().tasks] == [(), ()]


def test_death_outside_of_user_code_accuses_nobody_and_says_so() -> None:
    host = host_of_two()
    host.take(ThreadDied(0, Death("SIGABRT in native code"), goes_on=True))
    (status, _) = host.report().tasks
    assert "died (SIGABRT in native code, outside of user code)" in status.reason
    assert status.suspects == ()


def test_without_a_spare_the_suspect_stays_on_its_thread() -> None:
    host = running_host(threads=1, assign=[0, 1])
    host.take(ThreadDied(0, DEATH, goes_on=True))
    assigned = [AssignTask(0, replace(replica(0), suspects=(RANGE,)), EPOCH)]
    assert others(host.take(ThreadConnected(0))) == [*assigned, AssignTask(0, replica(1), EPOCH)]


def test_without_a_spare_the_second_death_at_the_record_is_a_verdict_too() -> None:
    host = running_host(threads=1, assign=[0, 1])
    host.take(ThreadDied(0, DEATH, goes_on=True))
    host.take(ThreadConnected(0))
    host.take(ThreadDied(0, EXACT, goes_on=True))
    judged = replace(replica(0), suspects=(replace(CALL, verdict="SIGSEGV"),))
    assigned = [AssignTask(0, judged, EPOCH), AssignTask(0, replica(1), EPOCH)]
    assert others(host.take(ThreadConnected(0))) == assigned


def test_without_a_spare_a_death_in_the_calls_of_two_tasks_is_no_verdict() -> None:
    host = running_host(threads=1, assign=[0, 1])
    host.take(ThreadDied(0, DEATH, goes_on=True))
    host.take(ThreadConnected(0))
    other = replace(CALL, topic="other")
    death = Death("exit code 3", ((task(0), CALL), (task(1), other)))
    host.take(ThreadDied(0, death, goes_on=True))
    first = replace(replica(0), suspects=(RANGE, CALL))
    second = replace(replica(1), suspects=(other,))
    assigned = [AssignTask(0, first, EPOCH), AssignTask(0, second, EPOCH)]
    assert others(host.take(ThreadConnected(0))) == assigned


def test_task_that_comes_as_a_suspect_gets_a_worker_of_its_own_at_once() -> None:
    host = running_host(threads=1, assign=[1], spares=1)
    suspect = replace(replica(0), suspects=(CALL,))
    assert others(host.command(replicas=[suspect])) == [LaunchThread(SPARE)]
    assert others(host.take(ThreadConnected(SPARE))) == [suspected(CALL)]

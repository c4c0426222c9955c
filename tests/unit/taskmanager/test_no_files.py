"""A PipelineThread's core in a process that has no open files left."""

from __future__ import annotations

from kafka_pipeline.taskmanager.task_entry import Phase
from kafka_pipeline.taskmanager.thread_events import (
    CloseEnded,
    EndProcess,
    Started,
    StartFailed,
    StartTask,
)
from tests.unit.taskmanager.thread_host import NO_FILES, Host, ended, fed, running, task


def seconds_without_files(host: Host, most_s: int) -> int | None:
    """Let all starts of a task fail; return when the process is ended, if it is."""
    began_ms = host.now_ms
    said = host.take(fed(), ended(failure=NO_FILES), CloseEnded(task(0)))
    while host.now_ms - began_ms <= most_s * 1000:
        match said:
            case [EndProcess(reason=reason)]:
                assert reason == NO_FILES.reason
                return (host.now_ms - began_ms) // 1000
            case [StartTask()]:
                said = host.take(StartFailed(task(0), NO_FILES))
            case _:
                said = host.wait(500)
    return None


def test_a_process_that_has_run_out_of_files_for_a_minute_is_ended() -> None:
    host = running()
    host.wait(600_000)
    found_s = seconds_without_files(host, 600)
    assert found_s is not None
    assert 60 <= found_s <= 90, "the pauses between starts grow"


def test_a_young_process_without_files_is_kept_as_its_limit_is_too_low() -> None:
    host = running()
    assert seconds_without_files(host, 500) is None


def test_a_start_that_has_its_files_begins_the_count_again() -> None:
    host = running()
    host.wait(600_000)
    assert seconds_without_files(host, 40) is None
    while host.phase() is not Phase.STARTING:
        host.wait(500)
    host.take(Started(task(0)))
    found_s = seconds_without_files(host, 600)
    assert found_s is not None
    assert found_s >= 60

"""`pipeline top`, computed from heartbeats."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from rich.screen import Screen

from kafka_pipeline.admin.broker.ports import find_free
from kafka_pipeline.admin.samples import samples
from kafka_pipeline.admin.top import TopView
from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
    TaskManagerInfo,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from tests.in_process import invoke

MANAGERS = tuple(TaskManagerInfo(number, Presence.UP, age_ms=0) for number in (0, 1))


class Watch:
    """A view, a clock, and the tasks of the last status."""

    def __init__(self, fits: bool = False) -> None:
        self.now_s = 100.0
        self.view = TopView(fits, 1000, clock=lambda: self.now_s)

    def look(self, *tasks: TaskInfo, after_s: float = 1.0) -> RenderableType:
        self.now_s += after_s
        leader = JobManagerInfo(Presence.UP, epoch=7, age_ms=100)
        return self.view.update(ClusterStatus(leader, MANAGERS, tasks))


def task(
    processor: str,
    partition: int = 0,
    state: TaskState = TaskState.RUNNING,
    owner: int = 0,
    reason: str = "",
    **figures: int,
) -> TaskInfo:
    task_id = TaskId(processor, partition)
    return TaskInfo(task_id, owner, TaskStatus(task_id, state, figures=figures), reason)


def text(content: RenderableType, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(content)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def rows(content: RenderableType, title: str, width: int = 140) -> list[list[str]]:
    """Return the words of each row below the head of a table."""
    lines = text(content, width).splitlines()
    start = next(n for n, line in enumerate(lines) if line.strip() == title)
    body = lines[next(n for n in range(start, len(lines)) if "─" in lines[n]) + 1 :]
    end = next((n for n, line in enumerate(body) if not line.strip()), len(body))
    return [line.split() for line in body[:end]]


def test_rates_are_those_between_two_reports() -> None:
    watch = Watch()
    watch.look(task("Count", records_in=100, records_out=10))
    shown = watch.look(task("Count", records_in=5100, records_out=2010), after_s=2)
    assert rows(shown, "Tasks") == [["Count_0", "0", "RUNNING", "2,500", "1,000", "?"]]
    assert rows(shown, "Processors") == [["Count", "1", "of", "1", "2,500", "1,000", "?"]]


def test_rates_are_unknown_at_first_and_after_a_move() -> None:
    watch = Watch()
    assert rows(watch.look(task("Count", records_in=100)), "Tasks") == [
        ["Count_0", "0", "RUNNING", "?"]
    ]
    watch.look(task("Count", records_in=200))
    moved = watch.look(task("Count", owner=1, records_in=5))
    assert rows(moved, "Tasks") == [["Count_0", "1", "RUNNING", "?"]]


def test_a_processor_has_the_sums_of_its_tasks_and_the_oldest_record() -> None:
    watch = Watch()
    both = [task("Count", 0), task("Count", 1)]
    watch.look(*both)
    shown = watch.look(
        task("Count", 0, records_in=100, lag=5, oldest_waiting_ms=3000, dead_letters=1),
        task("Count", 1, records_in=200, lag=6, oldest_waiting_ms=9000, dead_letters=2),
    )
    expected = ["Count", "2", "of", "2", "300", "0", "11", "9.0", "s", "3"]
    assert rows(shown, "Processors") == [expected]


def test_what_does_not_run_is_on_top_then_what_lags_most_then_the_slowest() -> None:
    watch = Watch()
    tasks = [
        ("Fast", TaskState.RUNNING, 0, 900),
        ("Slow", TaskState.RUNNING, 0, 100),
        ("Behind", TaskState.RUNNING, 50, 500),
        ("Broken", TaskState.FAILED, 0, 0),
    ]
    watch.look(*(task(name, state=state) for name, state, _, _ in tasks))
    shown = watch.look(
        *(task(name, state=state, lag=lag, records_in=n) for name, state, lag, n in tasks)
    )
    expected = ["Broken", "Behind", "Slow", "Fast"]
    assert [row[0] for row in rows(shown, "Processors")] == expected
    assert [row[0] for row in rows(shown, "Tasks")] == [f"{name}_0" for name in expected]


def test_a_task_that_is_held_is_not_on_top() -> None:
    held = TaskInfo(TaskId("Paused", 0), None, None, "", is_held=True)
    shown = Watch().look(held, task("Behind", lag=5))
    assert [row[0] for row in rows(shown, "Processors")] == ["Behind", "Paused"]


def test_reasons_are_below_the_processors() -> None:
    shown = text(Watch().look(task("Broken", state=TaskState.FAILED, reason="disk is full")))
    assert "Broken_0: disk is full" in shown
    assert shown.index("Processors") < shown.index("disk is full") < shown.index("Tasks")


def test_without_tasks_there_is_only_the_job_manager() -> None:
    assert text(Watch().look()).strip() == "JobManager: epoch 7, last heartbeat 0.1 s ago"


@pytest.mark.parametrize("height", [12, 20, 40])
def test_tasks_that_do_not_fit_the_terminal_are_counted(height: int) -> None:
    shown = Watch(fits=True).look(*(task("Count", n, lag=n) for n in range(100)))
    console = Console(file=io.StringIO(), width=80, height=height, color_system=None)
    lines = console.render_lines(Screen(shown), console.options.update(height=height))
    words = ["".join(segment.text for segment in line).strip() for line in lines]
    listed = [line for line in words if line.startswith("Count_")]
    assert listed[0].startswith("Count_99")
    assert f"and {100 - len(listed)} more tasks" in words
    # All that there is room for.
    assert len([line for line in words if not line]) <= 5


def test_all_tasks_are_shown_where_nothing_limits_the_lines() -> None:
    assert len(rows(Watch().look(*(task("Count", n) for n in range(100))), "Tasks")) == 100


def test_without_a_broker_the_command_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_pipeline.operations.cluster_watcher.COMMAND_TIMEOUT_S", 0.5)
    path = tmp_path / "config.yaml"
    (port,) = find_free(1)
    path.write_text(samples()["config.yaml"].replace("9092", str(port)))
    result = invoke("top", path)
    assert (result.exit_code, result.stdout) == (3, "")

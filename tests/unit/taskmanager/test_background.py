"""The background work of a PipelineThread: results, and operations that are abandoned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kafka_pipeline.common.errors import EscapedError
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.taskmanager.background import Background, Pool, Then
from kafka_pipeline.taskmanager.thread_events import Event

TIMEOUT_S = 20
RESULT = object()
OWNER, OTHER = TaskId("Query", 0), TaskId("Query", 1)


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


def into(results: list[Any], what: object = RESULT) -> Then:
    """Return a `then` that puts the result into a list, or something else."""

    def then(result: Any) -> Sequence[Event]:
        results.append(result if what is RESULT else what)
        return ()

    return then


def wait(background: Background) -> None:
    assert not list(background.events(TIMEOUT_S))


def run_until(background: Background, condition: Callable[[], bool]) -> None:
    while not condition():
        wait(background)


def test_user_code_goes_on_beside_a_call_that_was_abandoned(background: Background) -> None:
    may_return, begun = threading.Event(), threading.Event()
    results: list[Any] = []
    late = threading.Event()

    def hang() -> None:
        begun.set()
        may_return.wait(TIMEOUT_S)

    hanging = background.submit(Pool.USER, hang, into(results), lambda _: late.set())
    assert begun.wait(TIMEOUT_S)
    assert background.abandon(hanging)
    background.submit(Pool.USER, lambda: "next", into(results))
    run_until(background, lambda: results == ["next"])
    assert not background.is_busy
    may_return.set()
    wait(background)
    assert late.wait(TIMEOUT_S)
    assert results == ["next"]


def test_what_waits_for_a_thread_that_is_abandoned_never_begins(background: Background) -> None:
    may_return, begun = threading.Event(), threading.Event()
    done: list[str] = []

    def hang() -> None:
        begun.set()
        may_return.wait(TIMEOUT_S)

    background.submit(Pool.USER, hang, into(done, "hanging"))
    assert begun.wait(TIMEOUT_S)
    waiting = [
        background.submit(Pool.USER, lambda: done.append("work"), into(done, "told"))
        for _ in range(2)
    ]
    assert not background.abandon(waiting[0]), "it has not begun"
    may_return.set()
    run_until(background, lambda: done == ["hanging"])
    assert not background.is_busy
    assert not background.abandon(waiting[1])


def test_a_task_with_a_thread_to_itself_waits_for_no_call_of_another_one(
    background: Background,
) -> None:
    may_return, begun = threading.Event(), threading.Semaphore(0)
    results: list[Any] = []

    def hang() -> None:
        begun.release()
        may_return.wait(TIMEOUT_S)

    shared = background.submit(Pool.USER, hang, into(results, "shared"))
    own = background.submit(Pool.USER, hang, into(results, "own"), owner=OWNER)
    for _ in (shared, own):
        assert begun.acquire(timeout=TIMEOUT_S)
    background.submit(Pool.USER, lambda: "other", into(results), owner=OTHER)
    run_until(background, lambda: results == ["other"])
    assert background.abandon(own)
    assert "test_background.py:" in background.user_line()
    assert background.user_line(OWNER) == "", "it has no thread any more"
    background.submit(Pool.USER, lambda: "next", into(results), owner=OWNER)
    run_until(background, lambda: results == ["other", "next"])
    may_return.set()
    run_until(background, lambda: results == ["other", "next", "shared"])
    assert not background.abandon(shared)


def test_the_thread_of_a_task_ends_with_the_task(background: Background) -> None:
    threads: list[Any] = []
    background.submit(Pool.USER, threading.current_thread, into(threads), owner=OWNER)
    run_until(background, lambda: bool(threads))
    background.release(OWNER)
    threads[0].join(TIMEOUT_S)
    assert not threads[0].is_alive()
    background.release(OTHER)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_the_thread_of_user_code_survives_whatever_is_raised(
    background: Background, raised: BaseException
) -> None:
    results: list[Any] = []

    def leave() -> None:
        raise raised

    background.submit(Pool.USER, leave, into(results))
    background.submit(Pool.USER, lambda: "next", into(results))
    run_until(background, lambda: len(results) == 2)
    assert isinstance(results[0], EscapedError)
    assert results[0].__cause__ is raised
    assert results[1] == "next"


def test_the_line_of_user_code_that_hangs_is_known(background: Background) -> None:
    may_return, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        may_return.wait(TIMEOUT_S)

    done: list[Any] = []
    background.submit(Pool.USER, hang, into(done))
    assert begun.wait(TIMEOUT_S)
    assert "test_background.py:" in background.user_line()
    assert background.user_line().endswith(" in hang")
    may_return.set()
    run_until(background, lambda: done == [None])

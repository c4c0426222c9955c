"""Breaks the core of the PipelineThread in one way at a time; the simulation must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline.taskmanager import thread_state
from kafka_pipeline.taskmanager.task_entry import Release
from kafka_pipeline.taskmanager.thread_events import CommitEnded
from kafka_pipeline.taskmanager.thread_state import PipelineThreadState

Sabotage = Callable[[pytest.MonkeyPatch], None]


def endless_lease(patch: pytest.MonkeyPatch) -> None:
    """Tasks are kept although no message of the driver arrives."""
    original = PipelineThreadState.__init__

    def init(self: Any, *args: Any) -> None:
        original(self, *args)
        self._lease_ms = 10**9

    patch.setattr(PipelineThreadState, "__init__", init)


def endless_fencing(patch: pytest.MonkeyPatch) -> None:
    """A fenced task takes itself back again and again."""
    patch.setattr(thread_state, "FENCED_FOR_GOOD", 10**9)


def forgotten_close(patch: pytest.MonkeyPatch) -> None:
    """A released task is forgotten without being closed."""
    original = PipelineThreadState._close

    def close(self: Any, entry: Any) -> None:
        if isinstance(entry.end, Release):
            self._forget(entry, entry.end.reason)
        else:
            original(self, entry)

    patch.setattr(PipelineThreadState, "_close", close)


def ignored_fence(patch: pytest.MonkeyPatch) -> None:
    """A refused commit counts as done."""
    original = PipelineThreadState._on_commit_ended

    def on_commit_ended(self: Any, entry: Any, event: CommitEnded) -> None:
        original(self, entry, CommitEnded(event.task))

    patch.setattr(PipelineThreadState, "_on_commit_ended", on_commit_ended)


def forgotten_start(patch: pytest.MonkeyPatch) -> None:
    """A task that should start again after a pause never does."""
    original = PipelineThreadState._start_again

    def start_again(self: Any, *args: Any) -> None:
        original(self, *args)
        self._timed.clear()

    patch.setattr(PipelineThreadState, "_start_again", start_again)


def unwatched_calls(patch: pytest.MonkeyPatch) -> None:
    """A call of user code may take as long as it likes."""
    patch.setattr(PipelineThreadState, "_watch_call", lambda *_: None)


SABOTAGES: tuple[tuple[Sabotage, str], ...] = (
    (endless_lease, "are kept, with no sign of the driver"),
    (endless_fencing, "fence each other"),
    (forgotten_close, "is not closed"),
    (ignored_fence, "goes on though it knows that it is fenced"),
    (forgotten_start, "RESTARTING, or fenced"),
    (unwatched_calls, "is not given back|commit nothing|without an owner|does not run"),
)
"""Each sabotage with the simulation's complaint about it."""

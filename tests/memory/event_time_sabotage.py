"""Breaks one promise of event time at a time; the comparison with the model must notice each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.streams.dsl.table_values import _Versioned
from kafka_pipeline.streams.engine import running
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.streams.event_time.progress import Progress
from kafka_pipeline.streams.event_time.writer_progress import Answers, WriterProgress
from kafka_pipeline.taskmanager.task import Task
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.memory.broker import Broker
from tests.memory.clients import MemoryPositions
from tests.memory.faults import Weather

Sabotage = Callable[[pytest.MonkeyPatch], None]


def the_maximum_is_the_time(patch: pytest.MonkeyPatch) -> None:
    """Behind several writers, too, each record moves the time of a step on."""

    def init(original: Any, self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.follows_records = True

    _instead_of(patch, InputTime, "__init__", init)


def clocks_do_not_travel(patch: pytest.MonkeyPatch) -> None:
    """Records that are behind go to internal topics without their clocks."""
    patch.setattr(running, "with_clock", lambda headers, clock: headers)
    patch.setattr(running, "with_clocks", lambda headers, timestamps, clocks: headers)


def marks_are_taken_at_once(patch: pytest.MonkeyPatch) -> None:
    """A task does not wait until it has processed what is before a mark."""

    def update(original: Any, self: Any, now_ms: int, _: Any, *rest: Any) -> int:
        time: int = original(self, now_ms, lambda partition: 2**62, *rest)
        return time

    _instead_of(patch, InputTime, "update", update)


def stable_ends_are_marks(patch: pytest.MonkeyPatch) -> None:
    """Marks are last stable offsets: what waits for its marker is left out."""

    def ends(original: Any, self: Any, partitions: Any) -> dict[Partition, int]:
        found: dict[Partition, int] = original(self, partitions)
        return {each: self._link.broker.log(each).stable_end for each in found}

    _instead_of(patch, MemoryPositions, "ends", ends)


def ends_first(patch: pytest.MonkeyPatch) -> None:
    """A look asks for the ends before it asks what is committed."""

    def answers(original: Any, self: Any, writers: Any, marks: Any) -> Answers:
        inputs = [(t, n) for w in writers for t, count in w.inputs.items() for n in range(count)]
        ends = self._brokers.ends({*inputs, *marks})
        found: Answers = original(self, writers, marks)
        return found._replace(ends=ends)

    _instead_of(patch, TimeWatch, "_answers", answers)


def open_transactions_count(patch: pytest.MonkeyPatch) -> None:
    """A look takes what transactions would commit for committed, while they are open."""

    def positions_of(original: Any, self: Any, group: str) -> Any:
        found = original(self, group)
        for transaction in self._groups[group].pending:
            found |= transaction.positions[group]
        return found

    _instead_of(patch, Broker, "positions_of", positions_of)


def nothing_is_held_back(patch: pytest.MonkeyPatch) -> None:
    """What is said of tasks with windows leaves out that results are older than input."""
    patch.setattr(Progress, "held_back", lambda self, hold_ms: self)


def idle_at_once(patch: pytest.MonkeyPatch) -> None:
    """What was read to its end holds nobody back any more, without a wait."""

    def init(original: Any, self: Any, idle_after_ms: int) -> None:
        original(self, 0)

    _instead_of(patch, WriterProgress, "__init__", init)


def tables_say_how_far_time_is(patch: pytest.MonkeyPatch) -> None:
    """Rows that are only looked up move event time on, and hold it back, as records do."""
    patch.setattr(Pipeline, "looked_up_topics", lambda self, processor: ())


def histories_end_by_what_is_put(patch: pytest.MonkeyPatch) -> None:
    """The fastest of several writers decides how long a version can be looked up."""
    patch.setattr(_Versioned, "follow", lambda self: None)
    patch.setattr(_Versioned, "go_on", lambda self, time: None)


def what_waits_for_a_turn_counts_as_read(patch: pytest.MonkeyPatch) -> None:
    """A task tells that it has read what is in its inbox."""
    patch.setattr(Task, "_ends_taken_in", Task._ends_reached)


SABOTAGES: tuple[Sabotage, ...] = (
    the_maximum_is_the_time,
    clocks_do_not_travel,
    marks_are_taken_at_once,
    stable_ends_are_marks,
    ends_first,
    open_transactions_count,
    nothing_is_held_back,
    idle_at_once,
    tables_say_how_far_time_is,
    histories_end_by_what_is_put,
    what_waits_for_a_turn_counts_as_read,
)

HARSH_WEATHER: Mapping[Sabotage, Weather] = dict.fromkeys(
    (stable_ends_are_marks, open_transactions_count),
    Weather(marker_delay_ms=3000, bad_commit=0.3, preempted=0.2, early_send=1),
)
"""The weather in which a sabotage is seen soon; of the others, any will do."""


def _instead_of(
    patch: pytest.MonkeyPatch, owner: Any, name: str, function: Callable[..., Any]
) -> None:
    """Replace a method with a function that gets the original method as its first argument."""
    original = getattr(owner, name)

    def call(self: Any, *args: Any, **options: Any) -> Any:
        return function(original, self, *args, **options)

    patch.setattr(owner, name, call)

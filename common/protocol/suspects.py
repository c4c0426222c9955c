"""Calls that were in progress when a worker process ended, and verdicts on whether they ended it.

A task is a suspect from the first such end on. A worker of its own then repeats what was in
progress step by step. If the process ends at the same step again, that is a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import Count


class CallKind(StrEnum):
    """The user code that a task calls. `PROCESS` and `READ` concern records."""

    PROCESS = "`process`"
    READ = "the timestamp extractor"
    INIT = "`init`"
    CLOSE = "`close`"
    PUNCTUATION = "a punctuation"
    TIME = "a result on close"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A call that was in progress when a worker ended, and its records, if it concerns any.

    The records are those from offset `first` to `last` of a partition. Without a topic, they may be
    any records of the task: it was reading several partitions.
    """

    kind: str
    topic: str = ""
    partition: Count = 0
    first: Count = 0
    last: Count = 0
    verdict: str = ""
    """How the call ended the process; empty while the end may be a coincidence."""

    @property
    def is_about_records(self) -> bool:
        """Whether `on_error` can decide about it."""
        return self.kind in (CallKind.PROCESS, CallKind.READ)

    @property
    def is_exact(self) -> bool:
        """Whether it is one record, or one call without records."""
        if not self.is_about_records:
            return True
        return bool(self.topic) and self.first == self.last

    @property
    def place(self) -> str:
        """A description such as "`process` of orders[3]@1200"."""
        if not self.is_about_records:
            return self.kind
        if not self.topic:
            return f"{self.kind} of several inputs"
        where = f"{self.kind} of {self.topic}[{self.partition}]@{self.first}"
        return where if self.is_exact else f"{where} to {self.last}"

    def covers(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the call may have been about this record."""
        if not self.is_about_records:
            return False
        if not self.topic:
            return True
        is_there = self.topic == topic and self.partition == partition
        return is_there and self.first <= offset <= self.last

    def may_be(self, call: Suspect) -> bool:
        """Whether an exact call is this one, or among those that this one covers."""
        if call.is_about_records:
            return self.covers(call.topic, call.partition, call.first)
        return self.kind == call.kind


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a worker process, and the calls of tasks that may have caused it."""

    how: str
    """The cause, such as "SIGSEGV in native code, called from shop.py:12 in process"."""
    calls: tuple[tuple[TaskId, Suspect], ...] = ()

    @property
    def place(self) -> str:
        """The calls, such as "Shop_1 in `process` of orders[1]@1200"."""
        most = 3
        shown = [f"{task} in {call.place}" for task, call in self.calls[:most]]
        if len(self.calls) > most:
            shown.append(f"{counted(len(self.calls) - most, 'other task')}")
        return ", ".join(shown)


def after_death(
    known: Sequence[Suspect], call: Suspect, how: str, *, is_alone: bool
) -> tuple[Suspect, ...]:
    """Return the suspects of a task whose worker ended during `call`.

    If a known suspect covers `call`, the call has ended a second worker. That is a verdict, which
    replaces this suspect, provided that the call is exact and `is_alone`: no other task had a call
    in progress.
    """
    if call.is_exact and is_alone:
        settled = [each for each in known if not each.verdict and each.may_be(call)]
        if settled:
            others = tuple(each for each in known if each not in settled)
            return (*others, replace(call, verdict=how))
    return tuple(dict.fromkeys((*known, call)))


def as_suspects(found: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Return the suspects without their verdicts, for another worker.

    Its code may have been corrected, so the calls must be tried again.
    """
    return tuple(replace(each, verdict="") for each in found)

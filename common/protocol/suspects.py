"""What tasks were doing when their worker process ended, and whether that is known to be the cause.

A task is a suspect from the first such death on. It then does what was in progress step by step, in
a worker of its own. A second death at the same step is a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import Count


class CallKind(StrEnum):
    """The user code that a task calls. `PROCESS` and `READ` are about records."""

    PROCESS = "`process`"
    READ = "the timestamp extractor"
    INIT = "`init`"
    CLOSE = "`close`"
    PUNCTUATION = "a punctuation"
    TIME = "a result on close"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A call that was in progress when a worker ended, and its records, if it is about records.

    The records are those from offset `first` to `last` of a partition. Without a topic, they are
    any records of the task: it read several partitions at once.
    """

    kind: str
    topic: str = ""
    partition: Count = 0
    first: Count = 0
    last: Count = 0
    verdict: str = ""
    """How the call ended the process; empty as long as that may be chance."""

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
        """Whether an exact call is this one, or one of these."""
        if call.is_about_records:
            return self.covers(call.topic, call.partition, call.first)
        return self.kind == call.kind


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker process ended, and the calls of tasks that may be the reason."""

    how: str
    """Such as "SIGSEGV in native code, called from shop.py:12 in process"."""
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

    If the same call may have ended a worker before, that is a verdict, provided that the call
    `is_alone`: no other task had a call in progress. Suspects that it settles are left out.
    """
    if call.is_exact and is_alone:
        settled = [each for each in known if not each.verdict and each.may_be(call)]
        if settled:
            others = tuple(each for each in known if each not in settled)
            return (*others, replace(call, verdict=how))
    return tuple(dict.fromkeys((*known, call)))


def as_suspects(found: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """Return what another worker is to look at again: verdicts are of this one only.

    Its code may have been mended.
    """
    return tuple(replace(each, verdict="") for each in found)

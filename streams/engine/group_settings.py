"""How the tasks of a node group run."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import DEFAULT_BUFFERED_RECORDS
from kafka_pipeline.streams.durations import Milliseconds, whole_ms
from kafka_pipeline.streams.engine.arguments import require_int
from kafka_pipeline.streams.engine.record_queues import NEVER_WAIT
from kafka_pipeline.streams.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How the tasks of a group run.

    `dead_letter_topic` comes with `OnError.DEAD_LETTER` and `DEAD_LETTER_ALL`. If a task would
    write more than `max_dead_letters_per_minute` (1 or more) within a minute, it fails instead.
    `max_task_idle_ms` is explained in `RecordQueues`. Once `buffered_records` records of a
    partition wait, no more of the partition should be read. Raises `InvalidArgumentError` for
    invalid values.
    """

    on_error: OnError = OnError.FAIL
    dead_letter_topic: str | None = None
    max_dead_letters_per_minute: int | None = None
    max_task_idle_ms: Milliseconds = 0
    buffered_records: int = DEFAULT_BUFFERED_RECORDS
    takes_inputs_as_they_come: bool = False
    """Whether the results do not depend on the order of records of different partitions.

    If so, the task waits for no partition, and batches stay whole."""
    accumulates: bool = False
    """Whether records wait for more, because a call is expensive; see `RecordAccumulator`."""

    def __post_init__(self) -> None:
        if not isinstance(self.on_error, OnError):
            one = ", ".join(f"OnError.{each.name}" for each in OnError)
            raise InvalidArgumentError(f"on_error is one of {one}, not {self.on_error!r}")
        if self.on_error.writes_dead_letters and not self.dead_letter_topic:
            raise InvalidArgumentError(f"OnError.{self.on_error.name} needs a dead_letter_topic")
        if self.max_dead_letters_per_minute is not None:
            require_int("max_dead_letters_per_minute", self.max_dead_letters_per_minute, 1)
        _ = self.task_idle_ms
        require_int("buffered_records", self.buffered_records, 1)

    @property
    def task_idle_ms(self) -> int:
        """`max_task_idle_ms` as a number."""
        return whole_ms("GroupSettings", "max_task_idle_ms", self.max_task_idle_ms, NEVER_WAIT)

"""The ids of tasks."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Any

from kafka_pipeline.common.names import NAME, REFUSED_NAMES

# Kafka counts partitions with 32 bits.
_TASK_ID = re.compile(rf"({NAME})_(0|[1-9][0-9]{{0,9}})(?:\.standby([1-9][0-9]{{0,9}}))?")


@total_ordering
class TaskId:
    """A replica of a processor: it reads partition `partition` (0..) of every input topic.

    With `standby` 1.., it is that copy of the task's state on another TaskManager. The string is
    unique for any processor id: the last "_" always separates id and partition.

    It is not a dataclass, since msgspec could not read a dataclass from its string.
    """

    __match_args__ = ("processor", "partition", "standby")
    __slots__ = __match_args__

    def __init__(self, processor: str, partition: int, standby: int = 0) -> None:
        """Make the id of a task, or with `standby` the id of a copy."""
        self.processor = processor
        self.partition = partition
        self.standby = standby

    @property
    def _key(self) -> tuple[str, int, int]:
        return (self.processor, self.partition, self.standby)

    def __eq__(self, other: object) -> bool:
        """Whether it is the same task, or the same copy."""
        return isinstance(other, TaskId) and self._key == other._key

    def __lt__(self, other: TaskId) -> bool:
        """Compare processor, partition, and number of the copy, in this order."""
        return self._key < other._key

    def __hash__(self) -> int:
        """Return the same number for equal ids."""
        return hash((self.processor, self.partition, self.standby))

    def __repr__(self) -> str:
        """Return the id as Python has it."""
        return f"TaskId{self._key}"

    def __str__(self) -> str:
        """Return the id as a string, such as `Counter_0` or `Counter_0.standby1`."""
        copy = f".standby{self.standby}" if self.standby else ""
        return f"{self.processor}_{self.partition}{copy}"

    @property
    def active(self) -> TaskId:
        """The task whose state this standby copies; the task itself if it is not a standby."""
        return TaskId(self.processor, self.partition) if self.standby else self

    def copy(self, number: int) -> TaskId:
        """Return the id of a copy of this task; `number` is 1 or more."""
        return TaskId(self.processor, self.partition, number)

    @classmethod
    def parse(cls, text: Any) -> TaskId:
        """Return the task with this string. Raises ValueError if it is not a task id."""
        match = _TASK_ID.fullmatch(text) if isinstance(text, str) else None
        if match is None or match[1] in REFUSED_NAMES:
            raise ValueError(f'"{text}" is not a task id: it must look like "Counter_0"')
        return cls(match[1], int(match[2]), int(match[3] or 0))

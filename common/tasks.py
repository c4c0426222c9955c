"""The ids of tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_pipeline.common.names import NAME, REFUSED_NAMES

# Kafka counts partitions with 32 bits.
_TASK_ID = re.compile(rf"({NAME})_(0|[1-9][0-9]{{0,9}})(?:\.standby([1-9][0-9]{{0,9}}))?")


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """A replica of a processor: it reads partition `partition` (0..) of every input topic.

    With `standby` 1.., it is the first or a further copy of its state on another TaskManager. The
    string is unique for any processor id: the last "_" always separates id and partition.
    """

    processor: str
    partition: int
    standby: int = 0

    def __str__(self) -> str:
        """Return the id as a string, such as `Counter_0` or `Counter_0.standby1`."""
        copy = f".standby{self.standby}" if self.standby else ""
        return f"{self.processor}_{self.partition}{copy}"

    @property
    def active(self) -> TaskId:
        """The task whose state this standby copies; the task itself if it is not a standby."""
        return TaskId(self.processor, self.partition) if self.standby else self

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Return the task whose string this is; ValueError if it is not a task id."""
        match = _TASK_ID.fullmatch(text)
        if match is None or match[1] in REFUSED_NAMES:
            raise ValueError(f'"{text}" is no task id: it must look like "Counter_0"')
        return cls(match[1], int(match[2]), int(match[3] or 0))

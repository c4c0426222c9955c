"""What a task says of itself, from the PipelineThread to `pipeline status`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from common.nodes import TaskId


class TaskState(StrEnum):
    """The life of a task on its TaskManager.

    ::

        STARTING ─▶ RESTORING ─▶ RUNNING ─▶ (closed: no longer listed)
           ▲            │           │
           └────────────┴───────────┘   any error that a fresh start may cure
                        └───────────▶ FAILED: stopped for good, with a reason
    """

    STARTING = "STARTING"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    FAILED = "FAILED"


class ThreadState(StrEnum):
    """The health of a PipelineThread: STARTING, RUNNING, SILENT (says nothing), DEAD."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SILENT = "SILENT"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task's state and figures since it was started on this thread.

    `lag` counts the records that are not processed yet, as far as the brokers told; `None` while
    unknown. `restored` and `to_restore` are state topic offsets.
    """

    task: TaskId
    state: TaskState
    reason: str = ""
    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    transactions: int = 0
    restarts: int = 0
    lag: int | None = None
    restored: int = 0
    to_restore: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return asdict(self) | {"task": str(self.task)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> TaskStatus:
        """Read what `to_json` wrote. Raises `KeyError`, `TypeError` or `ValueError` on garbage."""
        return cls(
            **{**data, "task": TaskId.parse(data["task"]), "state": TaskState(data["state"])}
        )

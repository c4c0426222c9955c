"""What a task says of itself, from the PipelineThread to `pipeline status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any

from common.nodes import TaskId
from common.wire import JsonObject

_FIGURES = (
    "records_in",
    "records_out",
    "skipped",
    "dead_letters",
    "transactions",
    "restarts",
    "restored",
    "to_restore",
    "enforced",
    "enforced_per_minute",
)


class TaskState(StrEnum):
    """The life of a task on its TaskManager.

    ::

        STARTING ─▶ RESTORING ─▶ RUNNING ─▶ (closed: no longer listed)
           ▲            │           │
           └────────────┴───────────┘   any error that a fresh start may cure
                        └───────────▶ FAILED: stopped for good, with a reason

    A standby is STANDBY, not RUNNING, once it has its state and follows the task's changes.
    """

    STARTING = "STARTING"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    STANDBY = "STANDBY"
    FAILED = "FAILED"


class ThreadState(StrEnum):
    """The health of a PipelineThread: STARTING, RUNNING, SILENT (says nothing), DEAD."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SILENT = "SILENT"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task's state, its PipelineThread (0..), and its figures since it came there.

    `fingerprint` is that of the processor replica that runs.

    `lag` counts the records that are not processed yet, as far as the brokers told; `None` while
    unknown. `restored` and `to_restore` are state topic offsets. `dropped` counts, by the reason,
    records that went nowhere: as a partitioner or a timestamp extractor said, or as they came too
    late for a store. `enforced` counts how often records were processed though another input might
    still have had older ones; `enforced_per_minute` is that of the last minute. `restore_eta_s`
    says in how many seconds the restore will have ended if it goes on as fast; `None` while
    unknown.
    """

    task: TaskId
    state: TaskState
    reason: str = ""
    thread: int = 0
    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    transactions: int = 0
    restarts: int = 0
    lag: int | None = None
    restored: int = 0
    to_restore: int = 0
    fingerprint: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict, hash=False)
    enforced: int = 0
    enforced_per_minute: int = 0
    restore_eta_s: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        values = dict(zip(_NAMES, _values(self), strict=True))
        values["task"], values["dropped"] = str(self.task), dict(self.dropped)
        return values

    @classmethod
    def from_json(cls, data: Any) -> TaskStatus:
        """Read what `to_json` wrote. Raises ValueError on anything else."""
        fields = JsonObject(data)
        return cls(
            task=TaskId.parse(fields.text("task")),
            state=TaskState(fields.text("state")),
            thread=fields.integer("thread"),
            reason=fields.text("reason"),
            fingerprint=fields.text("fingerprint"),
            lag=fields.integer_or_none("lag"),
            restore_eta_s=fields.integer_or_none("restore_eta_s"),
            dropped=_counts(fields.object("dropped")),
            **{name: fields.integer(name) for name in _FIGURES},
        )


_NAMES = tuple(field.name for field in fields(TaskStatus))
_values = attrgetter(*_NAMES)


def _counts(data: dict[str, Any]) -> dict[str, int]:
    """Return counts by names. Raises ValueError for anything else."""
    fields = JsonObject(data)
    "".join(data).encode()
    return {name: fields.integer(name) for name in data}

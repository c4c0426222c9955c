"""The status of a task, as it travels from the PipelineThread to `pipeline status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_pipeline.common.protocol.key_warnings import KeyWarning
from kafka_pipeline.common.protocol.suspects import Suspect
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.typed_json import Count

FIGURES: Mapping[str, int | None] = {
    "records_in": 0,
    "records_out": 0,
    "skipped": 0,
    "dead_letters": 0,
    "dead_letters_per_minute": 0,
    "transactions": 0,
    "restarts": 0,
    "lag": None,
    "lag_age_ms": None,
    "oldest_waiting_ms": None,
    "enforced": 0,
    "enforced_per_minute": 0,
    "restored": 0,
    "to_restore": 0,
    "restore_eta_s": None,
    "fetched_bytes": 0,
    "sent_bytes": 0,
    "state_bytes": None,
    "event_time_ms": None,
    "newest_record_ms": None,
    "is_idle": 0,
    "held_unread": None,
    "late": 0,
    "late_per_minute": 0,
}
"""The names of all figures of a task, each with the value that a missing one has.

A missing count is 0, a missing gauge is unknown. To add a figure, name it here and put it into the
status where it is measured: reports and `pipeline status --json` then include it.

- `skipped`, `dead_letters`, `late`: of all times, wherever the task ran, like the counts in
  `dropped`; `dead_letters_per_minute`: in the last minute. All other counts begin with 0 when a
  TaskManager takes the task over.
- `lag`: offsets between what the task has committed and the last stable offset of its input, over
  all partitions. For a standby: between what it has applied and the end of the state topics.
- `lag_age_ms`: the age of `lag`; missing up to an age of three heartbeats.
- `oldest_waiting_ms`: the age of the oldest unread record, as far as known.
- `restored`, `to_restore`: offsets of state topics. `restore_eta_s`: seconds until the
  restore ends if its speed stays the same.
- `enforced`: how often records were processed though another input might still have had older
  ones; `enforced_per_minute`: how often in the last minute.
- `fetched_bytes`: bytes of fetched values, including uncommitted records and those fetched again.
  `sent_bytes`: bytes of the values of results and dead letters.
- `state_bytes`: RocksDB's files and write buffers.
- `event_time_ms`: the event time of the task. `newest_record_ms`: the largest timestamp that the
  task, or a task that writes its input, has processed. `is_idle`: 1 if no input has records to
  come for now, so that event time need not advance.
- `held_unread`: the number of unread offsets of the task in `held_by`, as far as known.
- `late`: late records, of all times; `late_per_minute`: in the last minute.
"""


class TaskState(StrEnum):
    """The life of a task on its TaskManager.

    ::

        STARTING ──▶ RESTORING ──▶ RUNNING ──▶ (closed: no longer listed)
         ▲    │          │            │
         │    ├──────────┴────────────┤
         │    ▼                       ▼
        RESTARTING                 FAILED
        an error ended its last    stopped for good,
        run; it starts again       with the reason
        after a pause, with the
        reason

    Errors that a restart may cure lead to RESTARTING, and so does the loss of the PipelineThread. A
    standby is STANDBY, not RUNNING, once it has its state and follows the task's changes.
    """

    STARTING = "STARTING"
    RESTARTING = "RESTARTING"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    STANDBY = "STANDBY"
    FAILED = "FAILED"


class ThreadState(StrEnum):
    """The health of a PipelineThread: STARTING, RUNNING, SILENT (no messages for a while), DEAD."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    SILENT = "SILENT"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task's state, its PipelineThread (0..), and its figures; see `FIGURES`.

    `fingerprint` identifies the processor replica that runs. `activity` describes a call of user
    code that is taking long, such as "in `process` of orders[3]@1200 for 12 s". `figures` has
    values by the names in `FIGURES`; counts of 0 are left out.

    `dropped` counts the records left out of the results, by reason, of all times: user code, a
    partitioner or a timestamp extractor dropped them, or they came too late, and were dropped or
    sent to `late_to`. `dropped_lately` counts those of the last minute. `rejected` counts the
    records that `on_error` skipped or sent to the dead letters, by the error's name, since the
    TaskManager took the task over.

    `held_by` is a task that writes the input, and whose unread records hold event time back.
    `key_warnings` are about topics whose keys do not meet those of others. `suspects` are the calls
    of this task that were in progress when worker processes ended.

    Raises ValueError for a figure that is not in `FIGURES`.
    """

    task: TaskId
    state: TaskState
    reason: str = ""
    thread: Count = 0
    fingerprint: str = ""
    activity: str = ""
    figures: Mapping[str, Count] = field(default_factory=dict, hash=False)
    dropped: Mapping[str, Count] = field(default_factory=dict, hash=False)
    rejected: Mapping[str, Count] = field(default_factory=dict, hash=False)
    held_by: TaskId | None = None
    dropped_lately: Mapping[str, Count] = field(default_factory=dict, hash=False)
    key_warnings: tuple[KeyWarning, ...] = ()
    suspects: tuple[Suspect, ...] = ()

    def __post_init__(self) -> None:
        """Leave out counts of 0, so that equal figures compare equal."""
        figures = self.figures
        if not figures.keys() <= FIGURES.keys():
            unknown = ", ".join(sorted(figures.keys() - FIGURES.keys()))
            raise ValueError(f"no figures of a task: {unknown}")
        told = {name: value for name, value in figures.items() if value != FIGURES[name]}
        object.__setattr__(self, "figures", told)

    def count(self, name: str) -> int:
        """Return a count; a missing one is 0."""
        return self.figures.get(name, 0)

    def gauge(self, name: str) -> int | None:
        """Return a figure that may be unknown."""
        return self.figures.get(name)

    def with_figures(self, **figures: int) -> TaskStatus:
        """Return a copy with new values for some figures."""
        return replace(self, figures={**self.figures, **figures})

    def event_time_lag_ms(self, newest_ms: int | None) -> int | None:
        """Return how far event time is behind a timestamp; `None` if unknown, or if it is idle."""
        time_ms = self.gauge("event_time_ms")
        if time_ms is None or newest_ms is None or self.count("is_idle"):
            return None
        return max(newest_ms - time_ms, 0)

    @property
    def without_lag(self) -> TaskStatus:
        """A copy with an unknown lag, for a task whose new records nobody counts."""
        gone = ("lag", "lag_age_ms", "oldest_waiting_ms")
        kept = {name: value for name, value in self.figures.items() if name not in gone}
        return replace(self, figures=kept)

    def after_silence(self, silent_ms: int) -> TaskStatus:
        """Return a copy whose lag is older by `silent_ms`."""
        if "lag" not in self.figures:
            return self
        return self.with_figures(lag_age_ms=self.count("lag_age_ms") + silent_ms)


def newest_record_ms(statuses: Iterable[TaskStatus]) -> int | None:
    """Return the largest timestamp that any of the tasks has processed; `None` while unknown."""
    found = (status.gauge("newest_record_ms") for status in statuses)
    return max((time_ms for time_ms in found if time_ms is not None), default=None)

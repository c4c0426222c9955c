"""All data that the console shows, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.rates import Rates
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import Deployed


class EventKind(StrEnum):
    """The subject of an event."""

    JOB_MANAGER = "job_manager"
    TASK_MANAGER = "task_manager"
    MOVE = "move"
    FAILURE = "failure"
    DEPLOYMENT = "deployment"
    ACTION = "action"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, by the brokers' clock.

    `tasks` are the first tasks concerned, and `task_count` is the number of all. An event that
    `needs_care` needs a person's attention.
    """

    at_ms: int
    kind: EventKind
    text: str
    reason: str = ""
    tasks: tuple[TaskId, ...] = ()
    task_count: int = 0
    needs_care: bool = False


@dataclass(frozen=True, slots=True)
class HistorySample:
    """Records per second and lag of each processor at one moment; unknown ones are left out."""

    at_ms: int
    records_in: Mapping[str, float]
    lag: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a job at one moment.

    `number` counts snapshots, `at_ms` is by the brokers' clock. The latest events and samples are
    last.
    """

    number: int
    at_ms: int
    job_name: str | None
    status: ClusterStatus
    deployed: Deployed | None = None
    rates: Mapping[TaskId, Rates] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    samples: tuple[HistorySample, ...] = ()

    @property
    def pipeline(self) -> Pipeline | None:
        """The running pipeline; `None` while the JobManager has not read it."""
        return self.deployed.version.pipeline if self.deployed else None

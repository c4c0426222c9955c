"""Events for the JobManager's core; its commands are messages (`common/protocol/messages.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_pipeline.common.protocol.messages import ProcessorReplica, Report
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.tick import Tick


@dataclass(frozen=True, slots=True)
class LeadershipBegan:
    """The JobManager's `sos` is in Kafka, at offset `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A TaskManager's report came in, with a heartbeat or as an introduction."""

    report: Report


@dataclass(frozen=True, slots=True)
class Echoed:
    """This JobManager read its own heartbeat back: Kafka accepts and delivers messages.

    All reports that it reads from now on were written after that heartbeat.
    """

    number: int


@dataclass(frozen=True, slots=True)
class PipelineChanged:
    """Other tasks are to run from now on, or others of them are held.

    The tasks of the processors in `held`, and `held_tasks`, are given back, and nobody gets them.
    `task_managers` may take part, but never fewer than `tm_number`.
    """

    replicas: Sequence[ProcessorReplica]
    held: frozenset[str] = frozenset()
    held_tasks: frozenset[TaskId] = frozenset()
    task_managers: int = 0


Event = LeadershipBegan | Reported | Tick | Echoed | PipelineChanged

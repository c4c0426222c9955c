"""Events for the JobManager's core; its commands are messages (`common/messages.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from common.messages import Report
from common.tick import Tick


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
    """This JobManager read its own heartbeat back: Kafka accepts and delivers messages."""


Event = LeadershipBegan | Reported | Tick | Echoed

"""What the JobManager's core takes in; its commands are messages (`common/messages.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from common.messages import Report


@dataclass(frozen=True, slots=True)
class ReignBegan:
    """The JobManager's `sos` is in Kafka, at offset `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A TaskManager's report came in, with a heartbeat or as an introduction."""

    report: Report


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Milliseconds of a clock that only goes forward; several a heartbeat period."""

    now_ms: int


@dataclass(frozen=True, slots=True)
class Echoed:
    """This JobManager's own heartbeat was read back: Kafka takes and gives messages."""


Event = ReignBegan | Reported | Tick | Echoed

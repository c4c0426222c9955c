"""What the JobManager hands to its console: immutable values, in a queue that never blocks."""

from __future__ import annotations

from collections import deque

from kafka_pipeline.common.messages import ControlRecord
from kafka_pipeline.deployment.desired_state import Deployed

_RECORDS_OF_DAEMON = 16


class Tap:
    """Takes values from the JobManager's thread, and gives them to the console's.

    If nobody takes records out, the oldest ones are dropped. The console then misses figures until
    the next full reports.
    """

    def __init__(self, daemons: int) -> None:
        """Make room for the records of so many daemons."""
        self._records: deque[tuple[ControlRecord, int]] = deque(maxlen=_RECORDS_OF_DAEMON * daemons)
        self.deployed: Deployed | None = None
        """What the job runs."""

    def put(self, record: ControlRecord, now_ms: int) -> None:
        """Add a record of a control topic that was read at `now_ms`, by this host's clock."""
        self._records.append((record, now_ms))

    def take(self) -> list[tuple[ControlRecord, int]]:
        """Return the records that have been added, and when each was, by this host's clock."""
        return [self._records.popleft() for _ in range(len(self._records))]

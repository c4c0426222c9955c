"""The queue from the JobManager to the console, which never blocks, and snapshots made from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.cluster.figures import by_processor
from kafka_pipeline.common.cluster.rates import RateLog, Rates
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.heartbeat_log import HeartbeatLog
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.history import History
from kafka_pipeline.console.views.snapshot import HistorySample, Snapshot
from kafka_pipeline.deployment.desired_state import Deployed

MOST_SAMPLES = 720
SAMPLE_MS = 5000
"""Together, the samples cover the last hour."""
_RECORDS_OF_DAEMON = 16


class Tap:
    """Passes values from the JobManager's thread to the console's.

    If nobody takes records out, the oldest are dropped. The console then lacks figures until the
    next full reports.
    """

    def __init__(self, daemons: int) -> None:
        """Make room for the records of this number of daemons."""
        self._records: deque[tuple[ControlRecord, int]] = deque(maxlen=_RECORDS_OF_DAEMON * daemons)
        self.deployed: Deployed | None = None
        """The version that the job runs, and its wish."""

    def put(self, record: ControlRecord, now_ms: int) -> None:
        """Add a record of a control topic that was read at `now_ms`, by this host's clock."""
        self._records.append((record, now_ms))

    def take(self) -> list[tuple[ControlRecord, int]]:
        """Return the records added since the last call, each with its time by this host's clock."""
        return [self._records.popleft() for _ in range(len(self._records))]


class Board:
    """The console's knowledge of the job. Belongs to the console's thread."""

    def __init__(self, config: Config, tap: Tap) -> None:
        self._job_name = config.job_name
        self._tap = tap
        self._log = HeartbeatLog(config)
        self._rates = RateLog(config.heartbeat_interval_ms)
        self._history = History()
        self._samples: deque[HistorySample] = deque(maxlen=MOST_SAMPLES)
        self._kept = tuple[HistorySample, ...]()
        self._ahead_ms = 0
        """How far the brokers' clock is ahead of this host's."""
        self._number = 0

    def next_snapshot(self, now_ms: int) -> Snapshot:
        """Process the new records, and return the state at `now_ms`, by this host's clock."""
        for record, received_ms in self._tap.take():
            self._ahead_ms = record.timestamp_ms - received_ms
            self._log.take(record)
        at_ms = now_ms + self._ahead_ms
        status, deployed = self._log.status(at_ms), self._tap.deployed
        rates = self._rates.take(at_ms, status)
        self._history.look(at_ms, status, deployed)
        self._sample(at_ms, status, rates)
        self._number += 1
        return Snapshot(
            number=self._number,
            at_ms=at_ms,
            job_name=self._job_name,
            status=status,
            deployed=deployed,
            rates=rates,
            events=self._history.events,
            samples=self._kept,
        )

    def _sample(self, at_ms: int, status: ClusterStatus, rates: Mapping[TaskId, Rates]) -> None:
        if self._samples and at_ms - self._samples[-1].at_ms < SAMPLE_MS:
            return
        figures = by_processor(status, rates)
        rates_in = {name: its.rate_in for name, its in figures.items() if its.rate_in is not None}
        lags = {name: its.lag for name, its in figures.items() if its.lag is not None}
        self._samples.append(HistorySample(at_ms, rates_in, lags))
        self._kept = tuple(self._samples)

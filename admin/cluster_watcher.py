"""Reads the heartbeats of a running pipeline."""

from __future__ import annotations

import time

from admin.cluster_status import Beat, ClusterStatus, newest, snapshot
from common.clock import wall_clock_ms
from common.codec import Codec
from common.config import Config
from common.kafka.admin import Admin
from common.kafka.control import ControlReader
from common.messages import Heartbeat, JobManagerBeat, MalformedMessageError
from common.topics import TopicNames

# What is shown of daemons that fell silent: their heartbeats of the last minutes.
_HISTORY_BEATS = 120
_BROKER_TIMEOUT_S = 10
_FRESH_BEATS = 1.5


class ClusterWatcher:
    """Follows the heartbeat topic and tells at any time what it says."""

    def __init__(self, config: Config) -> None:
        """Begin with the last heartbeats. Raises `UnavailableError` if no broker answers."""
        self._config = config
        self._topic = TopicNames.of(config).heartbeat
        self._codec = Codec(TopicNames.of(config))
        self._beats: list[Beat] = []
        self._brokers_ahead_ms = 0
        self._admin = Admin(config)
        self._admin.check_broker(_BROKER_TIMEOUT_S)
        self._reader = self._open()

    def read(self, wait_s: float) -> None:
        """Take in the heartbeats that have arrived, after waiting up to `wait_s` for the first."""
        self._reader = self._reader or self._open()
        if self._reader is None:
            time.sleep(wait_s)
            return
        for record in self._reader.read(wait_s):
            if record.offset >= self._reader.ends[self._topic]:
                # Written this moment, so it tells what time it is for the brokers.
                self._brokers_ahead_ms = record.timestamp_ms - wall_clock_ms()
            try:
                message = self._codec.decode(record)
                if isinstance(message, Heartbeat):
                    self._beats.append(Beat(record.timestamp_ms, message.report))
                elif isinstance(message, JobManagerBeat):
                    self._beats.append(Beat(record.timestamp_ms, message))
            except MalformedMessageError:
                continue
        self._beats = newest(self._beats)

    def read_until_fresh(self) -> None:
        """Read until all daemons have sent a heartbeat just now, or have had time to.

        Blocks for one and a half heartbeat intervals at most.
        """
        interval_s = self._config.heartbeat_interval_ms / 1000
        deadline_s = time.monotonic() + _FRESH_BEATS * interval_s
        while time.monotonic() < deadline_s:
            self.read(min(0.1, interval_s))
            if self._is_fresh(self.status()):
                return

    def status(self) -> ClusterStatus:
        """Return what the heartbeats that were read tell about this moment."""
        config = self._config
        now_ms = wall_clock_ms() + self._brokers_ahead_ms
        return snapshot(self._beats, now_ms, config.heartbeat_interval_ms, config.tm_number)

    def close(self) -> None:
        """Leave the brokers."""
        if self._reader is not None:
            self._reader.close()

    def _open(self) -> ControlReader | None:
        """Return a reader of the heartbeats; `None` while no daemon has made their topic."""
        if not self._admin.partition_counts([self._topic]):
            return None
        history = _HISTORY_BEATS * (self._config.tm_number + 1)
        return ControlReader(self._config, [self._topic], history)

    def _is_fresh(self, status: ClusterStatus) -> bool:
        ages_ms = [status.job_manager.age_ms, *(info.age_ms for info in status.task_managers)]
        return all(age is not None and age <= self._config.heartbeat_interval_ms for age in ages_ms)

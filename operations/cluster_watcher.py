"""Reads the heartbeats of a running pipeline, which show its status."""

from __future__ import annotations

import time
from contextlib import closing

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.heartbeat_log import HeartbeatLog
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.admin import COMMAND_TIMEOUT_S, Admin
from kafka_pipeline.common.kafka.control import ControlReader
from kafka_pipeline.common.protocol.messages import FULL_BEATS, MISSED_BEATS

# Heartbeats to read back for each daemon, to show those that fell silent in the last minutes.
_HISTORY_BEATS = 120
_FRESH_BEATS = 1.5
_SILENT_BEATS = MISSED_BEATS + 0.5


def read_status(config: Config) -> ClusterStatus:
    """Return the status of a pipeline.

    Blocks until the brokers have answered, usually a moment and 68 s at most, and then for up to
    1.5 heartbeat intervals, or 3.5 if no daemon sends heartbeats any more. Raises
    `UnavailableError` if the brokers do not answer.
    """
    with closing(ClusterWatcher(config)) as watcher:
        watcher.read_until_fresh()
        return watcher.status()


class ClusterWatcher:
    """Follows the heartbeat topic, and gives the status of the cluster at any time."""

    def __init__(self, config: Config) -> None:
        """Begin with the last heartbeats.

        Blocks until a broker has answered, 8 s at most; then until the brokers have listed the
        topics and given the end offset of the heartbeat topic, 30 s at most for each. Raises
        `UnavailableError` after that.
        """
        self._config = config
        self._topic = config.topic_names.heartbeat
        self._log = HeartbeatLog(config)
        self._opened_s = time.monotonic()
        self._brokers_ahead_ms: int | None = None
        self._admin = Admin(config)
        self._admin.check_broker(COMMAND_TIMEOUT_S)
        self._reader = self._open()

    def read(self, wait_s: float) -> None:
        """Read the heartbeats that have arrived, waiting up to `wait_s` for the first one.

        While the heartbeat topic does not exist, this asks the brokers for it, and may block and
        raise like the constructor. Raises `UnavailableError` if a right is missing.
        """
        self._reader = self._reader or self._open()
        if self._reader is None:
            time.sleep(wait_s)
            return
        records = self._reader.read(wait_s)
        if self._reader.refusal:
            raise UnavailableError(f"heartbeats cannot be read: {self._reader.refusal}")
        for record in records:
            if record.offset >= self._reader.ends[self._topic]:
                # Written just now, so its timestamp is the brokers' current time.
                self._brokers_ahead_ms = record.timestamp_ms - wall_clock_ms()
            self._log.take(record)

    def read_until_fresh(self) -> None:
        """Read until every daemon has just sent a heartbeat, or has had time to.

        Reads for at most

        - 1.5 heartbeat intervals, as a rule;
        - 3.5 if there are old heartbeats but no new ones: only this silence shows that all daemons
          are gone;
        - 5.5 if a TaskManager's last full report is older than anything that was read.

        Brokers that do not answer may add to that, see `read`.
        """
        interval_s = self._config.heartbeat_interval_ms / 1000
        started_s = time.monotonic()
        while not self._is_fresh(self.status()):
            since_s, beats = started_s, _FRESH_BEATS
            if self._brokers_ahead_ms is None and self._log.newest_ms:
                since_s, beats = self._opened_s, _SILENT_BEATS
            elif self.misses_tasks:
                beats = FULL_BEATS + 0.5
            if time.monotonic() - since_s >= beats * interval_s:
                return
            self.read(min(0.1, interval_s))

    def status(self) -> ClusterStatus:
        """Return the current status of the cluster, according to the heartbeats read so far."""
        return self._log.status(self._brokers_now_ms())

    @property
    def misses_tasks(self) -> bool:
        """Whether a TaskManager that is up may run tasks that were not read yet."""
        return self._log.misses_full_reports(self._brokers_now_ms())

    def close(self) -> None:
        """Disconnect from the brokers."""
        if self._reader is not None:
            self._reader.close()

    def _open(self) -> ControlReader | None:
        """Return a reader of the heartbeats; `None` if no daemon has created their topic yet."""
        if not self._admin.finds(self._topic):
            return None
        history = _HISTORY_BEATS * (self._config.tm_number + 1)
        reader = ControlReader(self._config, [self._topic], history)
        self._opened_s = time.monotonic()
        return reader

    def _brokers_now_ms(self) -> int:
        """Return the brokers' current time.

        Until a new heartbeat shows it, this is the host's time, but no earlier than the old
        heartbeats allow: they were written before the reader was opened.
        """
        if self._brokers_ahead_ms is not None:
            return wall_clock_ms() + self._brokers_ahead_ms
        waited_ms = int((time.monotonic() - self._opened_s) * 1000)
        return max(wall_clock_ms(), self._log.newest_ms + waited_ms)

    def _is_fresh(self, status: ClusterStatus) -> bool:
        if self._brokers_ahead_ms is None:
            return False
        if self.misses_tasks:
            return False
        ages_ms = [status.job_manager.age_ms, *(info.age_ms for info in status.task_managers)]
        return all(age is not None and age <= self._config.heartbeat_interval_ms for age in ages_ms)

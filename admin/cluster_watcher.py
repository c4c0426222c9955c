"""Reads the heartbeats of a running pipeline."""

from __future__ import annotations

import time
from dataclasses import replace

from admin.cluster_status import Beat, ClusterStatus, newest, snapshot
from common.clock import wall_clock_ms
from common.codec import Codec
from common.config import Config
from common.kafka.admin import Admin
from common.kafka.control import ControlReader
from common.messages import (
    FULL_BEATS,
    MISSED_BEATS,
    Heartbeat,
    JobManagerBeat,
    MalformedMessageError,
    Report,
)
from common.picture import Picture
from common.topics import TopicNames

# What is shown of daemons that fell silent: their heartbeats of the last minutes.
_HISTORY_BEATS = 120
_BROKER_TIMEOUT_S = 10
_FRESH_BEATS = 1.5
_SILENT_BEATS = MISSED_BEATS + 0.5


class ClusterWatcher:
    """Follows the heartbeat topic and tells at any time what it says."""

    def __init__(self, config: Config) -> None:
        """Begin with the last heartbeats.

        Blocks until a broker has answered, 15 s at most, and has told what topics there are and
        where that of the heartbeats ends, 30 s at most for each. Raises `UnavailableError` after
        that.
        """
        self._config = config
        self._topic = TopicNames.of(config).heartbeat
        self._codec = Codec(TopicNames.of(config))
        self._beats: list[Beat] = []
        self._pictures: dict[tuple[int, str], Picture] = {}
        self._opened_s = time.monotonic()
        self._brokers_ahead_ms: int | None = None
        self._admin = Admin(config)
        self._admin.check_broker(_BROKER_TIMEOUT_S)
        self._reader = self._open()

    def read(self, wait_s: float) -> None:
        """Take in the heartbeats that have arrived, after waiting up to `wait_s` for the first.

        While their topic is not there, asks the brokers for it: then it may block, and raises, as
        at the beginning.
        """
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
                    self._beats.append(Beat(record.timestamp_ms, self._completed(message.report)))
                elif isinstance(message, JobManagerBeat):
                    self._beats.append(Beat(record.timestamp_ms, message))
            except MalformedMessageError:
                continue
        self._beats = newest(self._beats)

    def read_until_fresh(self) -> None:
        """Read until all daemons have sent a heartbeat just now, or have had time to.

        Reads for one and a half heartbeat intervals at most; for three and a half where there are
        old heartbeats and nobody sends new ones, as only the silence itself then tells that all
        are gone; for five and a half if a TaskManager's last full report came before all that was
        read. Brokers that do not answer may add to that, as `read` says.
        """
        interval_s = self._config.heartbeat_interval_ms / 1000
        started_s = time.monotonic()
        while not self._is_fresh(self.status()):
            since_s, beats = started_s, _FRESH_BEATS
            if self._brokers_ahead_ms is None and self._beats:
                since_s, beats = self._opened_s, _SILENT_BEATS
            elif self._misses_full_reports():
                beats = FULL_BEATS + 0.5
            if time.monotonic() - since_s >= beats * interval_s:
                return
            self.read(min(0.1, interval_s))

    def status(self) -> ClusterStatus:
        """Return what the heartbeats that were read tell about this moment."""
        config = self._config
        return snapshot(
            self._beats, self._brokers_now_ms(), config.heartbeat_interval_ms, config.tm_number
        )

    def close(self) -> None:
        """Leave the brokers."""
        if self._reader is not None:
            self._reader.close()

    def _open(self) -> ControlReader | None:
        """Return a reader of the heartbeats; `None` while no daemon has made their topic."""
        if not self._admin.partition_counts([self._topic]):
            return None
        history = _HISTORY_BEATS * (self._config.tm_number + 1)
        reader = ControlReader(self._config, [self._topic], history)
        self._opened_s = time.monotonic()
        return reader

    def _brokers_now_ms(self) -> int:
        """Return what time it is for the brokers.

        Until they have shown it this is this host's time, but no sooner than old heartbeats
        allow: they were written before the reader was there.
        """
        if self._brokers_ahead_ms is not None:
            return wall_clock_ms() + self._brokers_ahead_ms
        newest_ms = max((beat.sent_at_ms for beat in self._beats), default=0)
        waited_ms = int((time.monotonic() - self._opened_s) * 1000)
        return max(wall_clock_ms(), newest_ms + waited_ms)

    def _completed(self, report: Report) -> Report:
        """Return a full report instead of one that adds to it, if that one was read."""
        sender = (report.tm_id, report.incarnation)
        picture = self._pictures.setdefault(sender, Picture())
        picture.take(report)
        if picture.beat < 0:
            return report
        return replace(report, tasks=tuple(picture.tasks.values()), base=None, closed=())

    def _misses_full_reports(self) -> bool:
        """Whether somebody who is there sends reports that cannot be completed yet."""
        overdue_ms = MISSED_BEATS * self._config.heartbeat_interval_ms
        return any(
            isinstance(beat.content, Report)
            and beat.content.base is not None
            and self._brokers_now_ms() - beat.sent_at_ms <= overdue_ms
            for beat in self._beats
        )

    def _is_fresh(self, status: ClusterStatus) -> bool:
        if self._brokers_ahead_ms is None or self._misses_full_reports():
            return False
        ages_ms = [status.job_manager.age_ms, *(info.age_ms for info in status.task_managers)]
        return all(age is not None and age <= self._config.heartbeat_interval_ms for age in ages_ms)

"""Keeps the last heartbeats of a job, from which the state of its cluster is derived."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kafka_pipeline.common.cluster.cluster_status import Beat, ClusterStatus, newest, snapshot
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    MISSED_BEATS,
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    MalformedMessageError,
    OtherProtocolError,
    Report,
    Threads,
)
from kafka_pipeline.common.protocol.reported_tasks import ReportedTasks
from kafka_pipeline.common.protocol.signing import BadSignatureError

_MOST_PROCESSES = 8
"""The most processes of one id that are remembered: each restart is another process."""
_MOST_BEATS = 1_000
"""The most processes that are remembered in all: any writer of the topic can make up ids."""


class HeartbeatLog:
    """The last heartbeat of each daemon. The caller reads the topics and supplies the time."""

    def __init__(self, config: Config) -> None:
        self._interval_ms = config.heartbeat_interval_ms
        self._tm_number = config.tm_number
        self._codec = Codec(config.topic_names, key=config.control_key)
        self._beats: list[Beat] = []
        self._reported: dict[tuple[int, str], ReportedTasks] = {}
        self._unsigned_ms: dict[str, int] = {}
        """When the last heartbeat without a valid signature was written, by the reason."""
        self._other_protocol: tuple[str, int] | None = None
        """Why the last heartbeat of an incompatible version was ignored, and when it was written.
        """

    @property
    def newest_ms(self) -> int:
        """When the newest heartbeat was sent, by the brokers' clock; 0 without any."""
        return max((beat.sent_at_ms for beat in self._beats), default=0)

    def take(self, record: ControlRecord) -> None:
        """Add the next record of a control topic; only heartbeats count."""
        try:
            message = self._codec.decode(record)
        except BadSignatureError as error:
            self._unsigned_ms[str(error)] = record.timestamp_ms
            return
        except OtherProtocolError as error:
            self._other_protocol = (str(error), record.timestamp_ms)
            return
        except MalformedMessageError:
            return
        match message:
            case Heartbeat(report) | Threads(report):
                self._beats.append(Beat(record.timestamp_ms, self._completed(report)))
            case JobManagerBeat():
                self._beats.append(Beat(record.timestamp_ms, message))

    def status(self, now_ms: int) -> ClusterStatus:
        """Return the state of the cluster; `now_ms` is the brokers' time."""
        self._forget_old()
        overdue_ms = MISSED_BEATS * self._interval_ms
        unsigned = [why for why, at in self._unsigned_ms.items() if now_ms - at <= overdue_ms]
        why, at_ms = self._other_protocol or ("", 0)
        status = snapshot(self._beats, now_ms, self._interval_ms, self._tm_number)
        return replace(
            status,
            unsigned=tuple(unsigned),
            other_protocol=why if now_ms - at_ms <= overdue_ms else "",
        )

    def misses_full_reports(self, now_ms: int) -> bool:
        """Whether some TaskManager is up whose last full report was not read."""
        overdue_ms = MISSED_BEATS * self._interval_ms
        return any(
            isinstance(beat.content, Report)
            and beat.content.base is not None
            and now_ms - beat.sent_at_ms <= overdue_ms
            for beat in self._beats
        )

    def _completed(self, report: Report) -> Report:
        """Return a partial report as a full one if the full report that it adds to was read."""
        sender = (report.tm_id, report.incarnation)
        reported = self._reported.setdefault(sender, ReportedTasks())
        reported.take(report)
        if reported.beat < 0:
            return report
        tasks = tuple(reported.tasks.values())
        return replace(report, tasks=tasks, base=None, closed=(), code=reported.code)

    def _forget_old(self) -> None:
        """Keep only the last heartbeat of each process, and only the last processes of each id."""
        kept: list[Beat] = []
        counts = Counter[int]()
        latest_first = newest(self._beats)[::-1]
        latest_first.sort(key=lambda each: -each.sent_at_ms)
        for beat in latest_first:
            if isinstance(beat.content, Report):
                counts[beat.content.tm_id] += 1
                if counts[beat.content.tm_id] > _MOST_PROCESSES or len(kept) >= _MOST_BEATS:
                    self._reported.pop((beat.content.tm_id, beat.content.incarnation), None)
                    continue
            kept.append(beat)
        self._beats = kept[::-1]

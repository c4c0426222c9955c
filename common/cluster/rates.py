"""Rates and trends, derived from the counts in heartbeats."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.protocol.status import TaskStatus
from kafka_pipeline.common.tasks import TaskId

_RATE_MS = 10_000
_TREND_MS = 60_000
_LEAST_STEP_MS = 900
"""A little less than a second, so that no heartbeat is left out if they come every second."""
_TREND_POINTS = 3
_RATE_BEATS = 3
_TREND_BEATS = 8


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast the figures of a task change, per second; `None` while unknown.

    `records_in`, `records_out` and `transactions` are means over ten seconds. `lag` is the change
    of the lag over a minute, negative if the task catches up. `committed_at_ms` is when the brokers
    received the heartbeat that reported the latest transaction, by their clock.
    """

    records_in: float | None = None
    records_out: float | None = None
    lag: float | None = None
    transactions: float | None = None
    committed_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Point:
    """The counts of a task in one heartbeat; `lag` is `None` if it is unknown or outdated."""

    at_ms: int
    records_in: int
    records_out: int
    transactions: int
    lag: int | None


@dataclass(slots=True)
class _Track:
    """The points of a task on one TaskManager, the latest last."""

    owner: int
    points: deque[_Point]
    committed_at_ms: int | None = None
    rates: Rates = field(default_factory=Rates)


class RateLog:
    """The counts of all tasks in the last minute."""

    def __init__(self, heartbeat_interval_ms: int) -> None:
        self._rate_ms = max(_RATE_MS, _RATE_BEATS * heartbeat_interval_ms)
        self._trend_ms = max(_TREND_MS, _TREND_BEATS * heartbeat_interval_ms)
        self._tracks: dict[TaskId, _Track] = {}

    def take(self, now_ms: int, status: ClusterStatus) -> dict[TaskId, Rates]:
        """Add the counts of a status at `now_ms`; return the rates of its tasks."""
        sent_at_ms = {
            info.id: now_ms - info.age_ms
            for info in status.task_managers
            if info.age_ms is not None
        }
        tracks: dict[TaskId, _Track] = {}
        for info in status.tasks:
            if info.status is None or info.owner is None:
                continue
            track = self._tracks.get(info.task)
            if track is None or track.owner != info.owner:
                track = _Track(info.owner, deque())
            tracks[info.task] = track
            self._add(track, _point(sent_at_ms[info.owner], info.status))
        self._tracks = tracks
        return {task: track.rates for task, track in tracks.items()}

    def _add(self, track: _Track, point: _Point) -> None:
        points = track.points
        if points:
            last = points[-1]
            if _is_below(point, last):
                # The PipelineThread was restarted, and counts from 0 again.
                points.clear()
            elif point.at_ms - last.at_ms < _LEAST_STEP_MS:
                return
            elif point.transactions > last.transactions:
                track.committed_at_ms = point.at_ms
        points.append(point)
        while point.at_ms - points[0].at_ms > self._trend_ms:
            points.popleft()
        recent = next(each for each in points if point.at_ms - each.at_ms <= self._rate_ms)
        track.rates = Rates(
            _per_second(recent, point, lambda each: each.records_in),
            _per_second(recent, point, lambda each: each.records_out),
            _trend(points),
            _per_second(recent, point, lambda each: each.transactions),
            track.committed_at_ms,
        )


def _point(at_ms: int, status: TaskStatus) -> _Point:
    is_old = status.gauge("lag_age_ms") is not None
    lag = None if is_old else status.gauge("lag")
    count = status.count
    return _Point(at_ms, count("records_in"), count("records_out"), count("transactions"), lag)


def _is_below(point: _Point, former: _Point) -> bool:
    return (
        point.records_in < former.records_in
        or point.records_out < former.records_out
        or point.transactions < former.transactions
    )


def _per_second(first: _Point, last: _Point, of: Callable[[_Point], int]) -> float | None:
    seconds = (last.at_ms - first.at_ms) / 1000
    return (of(last) - of(first)) / seconds if seconds > 0 else None


def _trend(points: Sequence[_Point]) -> float | None:
    """Return the change of the lag per second, from the mean of the first points to the last's."""
    if len(points) < 2 * _TREND_POINTS:
        return None
    first = [points[n] for n in range(_TREND_POINTS)]
    last = [points[-n - 1] for n in range(_TREND_POINTS)]
    lags = [point.lag for point in (*first, *last)]
    known = [lag for lag in lags if lag is not None]
    if len(known) < len(lags):
        return None
    change = sum(known[_TREND_POINTS:]) - sum(known[:_TREND_POINTS])
    between_ms = sum(each.at_ms for each in last) - sum(each.at_ms for each in first)
    return change * 1000 / between_ms

"""Counts of what a task did to records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from sys import float_info

from kafka_pipeline.common.committed import OTHER_REASONS, with_short_reasons
from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.user_series import UserSeries
from kafka_pipeline.streams.engine.outputs import ELSEWHERE, Counted, Dropped, Gauged, Note
from kafka_pipeline.streams.event_time.step_time import LATE

MOST_ERRORS = 20
"""How many names of errors a task counts by; user code can make up any number of classes."""
OTHER_ERRORS = "other"
MOST_REASONS = 20
"""How many reasons for drops a task counts by; user code can make up any number of them, too."""
_MOST_DROPPED = 1000
"""How many pairs of a reason and a place are kept in memory."""
_LONGEST_NAME = 80
MOST_SERIES = 1000
"""How many series a task has for counters of user code, and for gauges: a name with labels."""
OTHER_LABELS = "other"
"""All labels of further series have this value."""


@dataclass(slots=True)
class TaskFigures:
    """Counts of what was done to records."""

    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
    enforced: int = 0
    sent_bytes: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    """How many records were skipped or became dead letters, by the name of the error."""

    counted: dict[UserSeries, float] = field(default_factory=dict)
    """What user code has counted."""
    gauges: dict[UserSeries, float] = field(default_factory=dict)
    """What user code has set its gauges to."""

    def reject(self, error: str, records: int = 1) -> None:
        """Count records that were skipped or became dead letters, by the name of their error.

        After `MOST_ERRORS` names, new ones are `OTHER_ERRORS`. A name once counted stays, so each
        count only grows.
        """
        name = shorten(error, _LONGEST_NAME)
        if name not in self.rejected and len(self.rejected) >= MOST_ERRORS:
            name = OTHER_ERRORS
        self.rejected[name] += records

    def drop(self, dropped: Dropped, records: int) -> None:
        """Count records that were left out for a reason at a place.

        After 1000 of these, other reasons are `OTHER_REASONS`.
        """
        if dropped not in self.dropped and len(self.dropped) >= _MOST_DROPPED:
            dropped = Dropped(OTHER_REASONS, dropped.place)
        self.dropped[dropped] += records

    def count(self, series: UserSeries, amount: float) -> None:
        """Add to a counter of user code.

        After `MOST_SERIES`, the labels of new ones are `OTHER_LABELS`.
        """
        series = _limited(series, self.counted)
        self.counted[series] = min(self.counted.get(series, 0.0) + amount, float_info.max)

    def set_gauge(self, series: UserSeries, value: float) -> None:
        """Set a gauge of user code; its labels are limited as those of counters."""
        self.gauges[_limited(series, self.gauges)] = value

    def note(self, found: Note) -> None:
        """Take in what is among outputs for the figures."""
        match found:
            case Counted(series, amount):
                self.count(series, amount)
            case Gauged(series, value):
                self.set_gauge(series, value)
            case Dropped():
                self.dropped[found] += 1

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        """How many records were left out, by reason, in alphabetical order.

        After `MOST_REASONS` reasons, new ones are `OTHER_REASONS`. A reason once counted stays, so
        each count only grows.
        """
        if not self.dropped:
            return {}
        counts: Counter[str] = Counter()
        for dropped, count in self.dropped.items():
            reason = shorten(dropped.reason, _LONGEST_NAME)
            if reason not in counts and len(counts) >= MOST_REASONS:
                reason = OTHER_REASONS
            counts[reason] += count
        return dict(sorted(counts.items()))

    def resume_dropped(self, counts: Mapping[str, int]) -> None:
        """Count at least as many records by reason as the committed positions say."""
        known = with_short_reasons(self.dropped_by_reason.items())
        dropped = Counter(self.dropped)
        for reason, count in counts.items():
            if (missing := count - known.get(reason, 0)) > 0:
                dropped[Dropped(reason, ELSEWHERE)] += missing
        self.dropped = dropped

    def __add__(self, other: TaskFigures) -> TaskFigures:
        """Return the sums, and the gauges as `other` has set them."""
        sums = TaskFigures(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.skipped + other.skipped,
            self.dead_letters + other.dead_letters,
            self.dropped.copy(),
            self.enforced + other.enforced,
            self.sent_bytes + other.sent_bytes,
            self.rejected.copy(),
            self.counted.copy(),
            self.gauges.copy(),
        )
        for error, records in other.rejected.items():
            sums.reject(error, records)
        for dropped, records in other.dropped.items():
            sums.drop(dropped, records)
        for series, amount in other.counted.items():
            sums.count(series, amount)
        for series, value in other.gauges.items():
            sums.set_gauge(series, value)
        return sums


def _limited(series: UserSeries, known: Collection[UserSeries]) -> UserSeries:
    if series in known or len(known) < MOST_SERIES:
        return series
    return UserSeries(series.name, tuple((name, OTHER_LABELS) for name, _ in series.labels))


def late_of(dropped: Mapping[str, int]) -> int:
    """Return how many of the records that were left out, by reason, came too late.

    They were dropped, or sent to `late_to`.
    """
    return sum(dropped.get(reason, 0) for reason in LATE) if dropped else 0

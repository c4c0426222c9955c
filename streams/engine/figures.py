"""Counts of what a task did to records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import float_info

from kafka_pipeline.common.committed import OTHER_REASONS, with_short_reasons
from kafka_pipeline.common.errors import shorten
from kafka_pipeline.common.user_counter import UserCounter
from kafka_pipeline.streams.engine.outputs import ELSEWHERE, Counted, Dropped
from kafka_pipeline.streams.event_time.step_time import LATE

MOST_ERRORS = 20
"""How many names of errors a task counts by; user code can make up any number of classes."""
OTHER_ERRORS = "other"
MOST_REASONS = 20
"""How many reasons for drops a task counts by; user code can make up any number of them, too."""
_MOST_DROPPED = 1000
"""How many pairs of a reason and a place are kept in memory."""
_LONGEST_NAME = 80
MOST_COUNTERS = 1000
"""How many series of counters of user code a task has: pairs of a name and labels."""
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

    counted: dict[UserCounter, float] = field(default_factory=dict)
    """What user code has counted."""

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

    def count(self, counter: UserCounter, amount: float) -> None:
        """Add to a counter of user code.

        After `MOST_COUNTERS` series, the labels of new ones are `OTHER_LABELS`.
        """
        if counter not in self.counted and len(self.counted) >= MOST_COUNTERS:
            counter = UserCounter(counter.name, tuple((n, OTHER_LABELS) for n, _ in counter.labels))
        self.counted[counter] = min(self.counted.get(counter, 0.0) + amount, float_info.max)

    def note(self, found: Dropped | Counted) -> None:
        """Count what is among outputs to be counted."""
        if isinstance(found, Counted):
            self.count(found.counter, found.amount)
        else:
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
        """Return the sums."""
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
        )
        for error, records in other.rejected.items():
            sums.reject(error, records)
        for dropped, records in other.dropped.items():
            sums.drop(dropped, records)
        for counter, amount in other.counted.items():
            sums.count(counter, amount)
        return sums


def late_of(dropped: Mapping[str, int]) -> int:
    """Return how many of the records that were left out, by reason, came too late.

    They were dropped, or sent to `late_to`.
    """
    return sum(dropped.get(reason, 0) for reason in LATE) if dropped else 0

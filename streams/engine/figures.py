"""Counts of what a task did to records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from common.errors import shorten
from streams.engine.outputs import Dropped
from streams.event_time.step_time import EXPIRED, EXPIRED_AFTER_IDLE

MOST_ERRORS = 20
"""How many names of errors a task counts by; user code can make up any number of classes."""
OTHER_ERRORS = "other"
_LONGEST_NAME = 80


@dataclass(slots=True)
class Figures:
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

    def reject(self, error: str, records: int = 1) -> None:
        """Count records that were skipped or became dead letters, by the name of their error.

        After `MOST_ERRORS` names, new ones are `OTHER_ERRORS`. A name once counted stays, so each
        count only grows.
        """
        name = shorten(error, _LONGEST_NAME)
        if name not in self.rejected and len(self.rejected) >= MOST_ERRORS:
            name = OTHER_ERRORS
        self.rejected[name] += records

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        """How many records were dropped, by reason, in alphabetical order."""
        counts: Counter[str] = Counter()
        for dropped, count in self.dropped.items():
            counts[dropped.reason] += count
        return dict(sorted(counts.items()))

    @property
    def late(self) -> int:
        """How many records were dropped as they were too late."""
        reasons = EXPIRED, EXPIRED_AFTER_IDLE
        return sum(count for dropped, count in self.dropped.items() if dropped.reason in reasons)

    def __add__(self, other: Figures) -> Figures:
        """Return the sums."""
        sums = Figures(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.skipped + other.skipped,
            self.dead_letters + other.dead_letters,
            self.dropped + other.dropped,
            self.enforced + other.enforced,
            self.sent_bytes + other.sent_bytes,
            self.rejected.copy(),
        )
        for error, records in other.rejected.items():
            sums.reject(error, records)
        return sums

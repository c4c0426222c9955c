"""Counts of what a task did to records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from streams.engine.outputs import Dropped


@dataclass(slots=True)
class Figures:
    """Counts of what was done to records."""

    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
    enforced: int = 0

    @property
    def dropped_by_reason(self) -> dict[str, int]:
        """How many records were dropped, by reason, in alphabetical order."""
        counts: Counter[str] = Counter()
        for dropped, count in self.dropped.items():
            counts[dropped.reason] += count
        return dict(sorted(counts.items()))

    def __add__(self, other: Figures) -> Figures:
        """Return the sums."""
        return Figures(
            self.records_in + other.records_in,
            self.records_out + other.records_out,
            self.skipped + other.skipped,
            self.dead_letters + other.dead_letters,
            self.dropped + other.dropped,
            self.enforced + other.enforced,
        )

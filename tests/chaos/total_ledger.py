"""The required results of an aggregate of counts, computed without the engine.

Each key has one count, which grows and replaces its former one. A result of a group has the sum of
the counts of its keys, and the number of keys that have one. How many records a result counts is
open. But neither number ever becomes smaller, and the sum never exceeds the number of records: it
would if a new count were added and the former one not taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Total:
    """The results of one group, in the order in which they come."""

    keys: list[bytes]
    sum: int = 0
    """The sum of counts in the last result, and how many counts it has."""
    counts: int = 0
    highest: int = 0
    """The largest sum."""
    repeated: int = 0
    reordered: int = 0

    def note(self, total: int, counts: int) -> None:
        """Process a result; raises `ValueError` if no keys can have these counts."""
        if not 0 < counts <= min(len(self.keys), total):
            raise ValueError("no such counts")
        self.repeated += (total, counts) == (self.sum, self.counts)
        self.reordered += total < self.sum or counts < self.counts
        self.sum, self.counts = total, counts
        self.highest = max(self.highest, total)

    def wanted(self, written: Mapping[bytes, int]) -> int:
        """Return the sum of the last result after these numbers."""
        return sum(written[key] for key in self.keys)

    def is_ahead(self, written: Mapping[bytes, int]) -> bool:
        """Whether a result has counted more than what was written."""
        return self.highest > self.wanted(written)

    def lost(self, written: Mapping[bytes, int]) -> int:
        """Return how many records the last result lacks, or else, how many keys."""
        keys = sum(written[key] > 0 for key in self.keys)
        return max(self.wanted(written) - self.sum, 0) or max(keys - self.counts, 0)

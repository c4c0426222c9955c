"""The results of one kind for one key, which are numbered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Tally(NamedTuple):
    """How many results are wrong, by kind of error; all zero if none is."""

    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    wrong: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self)

    def plus(self, other: Tally) -> Tally:
        """Return the sums of both."""
        return Tally(*map(sum, zip(self, other, strict=True)))


@dataclass(slots=True)
class NumberedResults:
    """Which numbers have come; each must come once, as a rule in ascending order."""

    seen: bytearray = field(default_factory=bytearray)
    highest: int = 0
    repeated: int = 0
    reordered: int = 0

    def note(self, number: int) -> None:
        """Process the result with a number, which is 1 or more."""
        late = number < self.highest
        self.reordered += self._mark(number) and late

    def note_in_any_order(self, number: int) -> None:
        """Process the result with a number that may come before or after others."""
        self._mark(number)

    def excuse(self, low: int, high: int) -> None:
        """Mark the numbers after `low`, up to `high`, as seen: they must not come."""
        for number in range(low + 1, high + 1):
            self._mark(number)

    def _mark(self, number: int) -> bool:
        """Record that a number was seen; return whether this is the first time."""
        if number >= len(self.seen):
            self.seen.extend(bytes(number + 1024 - len(self.seen)))
        is_new = not self.seen[number]
        self.repeated += not is_new
        self.seen[number] = 1
        self.highest = max(self.highest, number)
        return is_new

    def lost(self, written: int) -> int:
        """Return how many of the numbers up to `written` have not come."""
        return written - sum(self.seen[1 : written + 1])

    def first_lost(self) -> int:
        """Return the first number that has not come."""
        found = self.seen.find(0, 1)
        return found if found > 0 else len(self.seen)

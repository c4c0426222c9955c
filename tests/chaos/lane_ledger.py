"""The required results of the windows in `lanes.py`, computed without the engine.

Each source partition has its records in the order of time, and Kafka has all records of a window
before it gets one of a later window. So no record is late, and each belongs to its window: a result
that counts fewer records has lost some.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.event_times import EventTimes
from tests.user_code.numbered import WINDOW_MS


@dataclass(slots=True)
class Lane:
    """The results of the windows of one lane, in the order in which they come."""

    keys: list[bytes]
    times: EventTimes
    latest: int = -1
    repeated: int = 0
    """Records that are in a window twice, and windows that came twice."""
    reordered: int = 0
    left_out: int = 0
    """Records that are not in the results of their windows."""
    first_short: str = ""
    seen: dict[int, set[int]] = field(default_factory=dict)
    """The starts of windows by epoch."""

    def note(self, start: int, count: int, total: int) -> None:
        """Process a result; raises `ValueError` if no records of the window lead to it."""
        numbers = self._numbers_in(start)
        missing = len(numbers) - count
        if start % WINDOW_MS or not numbers or count <= 0:
            raise ValueError("no such window")
        if missing == 0 and total != sum(numbers):
            raise ValueError(f"the sum is {sum(numbers)}")
        seen = self.seen.setdefault(self.times.epoch_at(start), set())
        if start in seen:
            self.repeated += 1
            return
        if missing > 0 and not self.left_out:
            self.first_short = f"the first in the window {start}, with {count} of {len(numbers)}"
        self.left_out += max(missing, 0)
        self.repeated += max(-missing, 0)
        self.reordered += start < self.latest
        self.latest = max(self.latest, start)
        seen.add(start)

    def _numbers_in(self, start: int) -> list[int]:
        numbers_in = self.times.numbers_in
        return [number for key in self.keys for number in numbers_in(key, start, WINDOW_MS)]

    def missing(self, epoch: int) -> int:
        """Return how many windows of a former epoch have no result."""
        wanted = self.times.windows_in(self.keys, epoch, WINDOW_MS)
        return wanted - len(self.seen.get(epoch, ()))

    def lost(self, epoch: int) -> int:
        """Return how many records are in the windows of a former epoch that have no result."""
        if not self.missing(epoch):
            return 0
        begin = self.times.start_of(epoch)
        count = self.times.windows_in(self.keys, epoch, WINDOW_MS)
        seen = self.seen.get(epoch, ())
        starts = range(begin, begin + count * WINDOW_MS, WINDOW_MS)
        return sum(len(self._numbers_in(start)) for start in starts if start not in seen)

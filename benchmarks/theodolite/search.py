"""The search for the highest rate that a job sustains, by doubling and bisection."""

from __future__ import annotations

import math
from collections.abc import Generator


class Search:
    """Says which rate to try next, and learns whether it holds.

    The rate doubles from `first`, or halves if that does not hold. The search ends when the lowest
    rate that failed is at most `1 + precision` times the result.
    """

    def __init__(self, first: int, precision: float) -> None:
        self._steps = _steps(first, precision)
        self.rate: int | None = next(self._steps)
        """The rate to try; `None` at the end of the search."""
        self.found = 0
        """At the end, the highest rate that was tried and holds; 0 if not even 1 does."""

    def give_up(self) -> None:
        """End without a result."""
        self.rate = None

    def learn(self, holds: bool) -> None:
        """Go on to the next rate: the last one holds, or does not."""
        try:
            self.rate = self._steps.send(holds)
        except StopIteration as end:
            self.rate, self.found = None, end.value


def _steps(first: int, precision: float) -> Generator[int, bool, int]:
    low, high = 0, first
    while (yield high):
        low, high = high, 2 * high
    while not low and high > 1:
        if (yield high // 2):
            low = high // 2
        else:
            high //= 2
    while low and high - low > max(1, precision * low):
        middle = math.isqrt(low * high)
        if middle == low:
            middle += 1
        if (yield middle):
            low = middle
        else:
            high = middle
    return low

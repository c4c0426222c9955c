"""The search for the highest rate that a job sustains, by doubling and bisection."""

from __future__ import annotations

import math
from collections.abc import Callable


def highest(holds: Callable[[int], bool], first: int, precision: float) -> int:
    """Return the highest rate that was tried and holds; 0 if not even 1 does.

    The rate doubles from `first`, or halves if that does not hold. The search ends when the lowest
    rate that failed is at most `1 + precision` times the result.
    """
    low, high = 0, first
    while holds(high):
        low, high = high, 2 * high
    while not low and high > 1:
        if holds(high // 2):
            low = high // 2
        else:
            high //= 2
    while low and high - low > max(1, precision * low):
        middle = math.isqrt(low * high)
        if middle == low:
            middle += 1
        if holds(middle):
            low = middle
        else:
            high = middle
    return low

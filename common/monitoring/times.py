"""Durations, counted by length."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Annotated

from msgspec import Meta, Struct

from kafka_pipeline.common.typed_json import Count

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""The upper bound of each count, in seconds; the last count has all longer durations."""

_SIZE = len(BOUNDS_S) + 1


class Times(Struct, frozen=True):
    """Counts of durations by length, and the sum of the durations in microseconds."""

    counts: Annotated[tuple[Count, ...], Meta(min_length=_SIZE, max_length=_SIZE)] = (0,) * _SIZE
    sum_us: Count = 0

    def up_to(self) -> list[tuple[float, int]]:
        """Return, for each bound, the number of durations up to it; the last bound is infinity."""
        return list(zip((*BOUNDS_S, float("inf")), accumulate(self.counts), strict=True))


class TimeCounter:
    """Counts durations. One thread adds to it; any thread may read it."""

    def __init__(self) -> None:
        self._counts = [0] * _SIZE
        self._sum_us = 0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_us += int(seconds * 1_000_000)

    @property
    def times(self) -> Times:
        """The counts so far."""
        return Times(tuple(self._counts), self._sum_us)

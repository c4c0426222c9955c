"""How long something took, as counts by length."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from kafka_pipeline.common.wire import JsonObject

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""The longest time of each count, in seconds; the last count has the longer ones."""

_SIZE = len(BOUNDS_S) + 1


@dataclass(frozen=True, slots=True)
class Times:
    """How many times were how long, and their sum in microseconds."""

    counts: tuple[int, ...] = (0,) * _SIZE
    sum_us: int = 0

    def up_to(self) -> list[tuple[float, int]]:
        """Return for each bound how many times were no longer; the last bound is infinity."""
        return list(zip((*BOUNDS_S, float("inf")), accumulate(self.counts), strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {"counts": self.counts, "sum_us": self.sum_us}

    @classmethod
    def from_json(cls, data: Any) -> Times:
        """Read what `to_json` wrote. Raises ValueError on anything else."""
        fields = JsonObject(data)
        counts = fields.integers("counts")
        if len(counts) != _SIZE:
            raise ValueError("other times than those of this version")
        return cls(counts, fields.integer("sum_us"))


class TimeCounter:
    """Counts times. One thread adds to it, any thread may read it."""

    def __init__(self) -> None:
        self._counts = [0] * _SIZE
        self._sum_us = 0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self._sum_us += int(seconds * 1_000_000)

    @property
    def times(self) -> Times:
        """What was counted so far."""
        return Times(tuple(self._counts), self._sum_us)

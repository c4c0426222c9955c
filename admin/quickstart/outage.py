"""Measures how long results stayed away after a TaskManager was killed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Outage:
    """Seconds from the kill until results arrived again in all partitions.

    `None` if a partition got nothing after the kill: it never came back, or had everything before.
    """

    seconds: float | None
    target_s: float

    def figures(self) -> tuple[str, str]:
        """Return the time and what it means."""
        target = f"the target is {self.target_s:.0f} s"
        if self.seconds is None:
            return "", f"no result came to one of the partitions after it ({target})"
        return f"{self.seconds:.1f} s", f"until all partitions had results again ({target})"


def measure(
    arrivals_s: Iterable[Sequence[float]], killed_at_s: float, heartbeat_interval_s: float
) -> Outage:
    """Return the outage, from the times at which results arrived in each partition.

    The target is three heartbeats to notice the loss, and three seconds for the rest.
    """
    outages = [seconds_away(times, killed_at_s, heartbeat_interval_s) for times in arrivals_s]
    found = [seconds for seconds in outages if seconds is not None]
    is_complete = len(found) == len(outages)
    return Outage(max(found, default=None) if is_complete else None, 3 * heartbeat_interval_s + 3)


def seconds_away(
    arrivals_s: Sequence[float], killed_at_s: float, threshold_s: float
) -> float | None:
    """Return how many seconds after the kill results arrived again in a partition.

    `arrivals_s` are the times at which results arrived, ascending. The longest pause that ended
    after the kill counts. Returns 0 if that pause is shorter than `threshold_s`: the partition
    never stopped. Returns `None` if nothing arrived after the kill.
    """
    after = [arrival for arrival in arrivals_s if arrival > killed_at_s]
    if not after:
        return None
    before = max((arrival for arrival in arrivals_s if arrival <= killed_at_s), default=killed_at_s)
    pause_s, end = max((end - start, end) for start, end in pairwise([before, *after]))
    return end - killed_at_s if pause_s >= threshold_s else 0.0

"""How far something is in event time, and what several together are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

UNKNOWN = -1


class Progress(NamedTuple):
    """Every record to come has a clock of `time_ms` or later, in ms; -1 while unknown.

    What `is_idle` has nothing to come for now, and holds nobody back.
    """

    time_ms: int = UNKNOWN
    is_idle: bool = False

    def held_back(self, hold_ms: int) -> Progress:
        """Return the progress behind a node that holds records back for that long."""
        return self._replace(time_ms=max(self.time_ms - hold_ms, UNKNOWN))


def combined(parts: Iterable[Progress]) -> Progress:
    """Return the progress of what comes from several: the least of those that are not idle.

    If all are idle, it is as far as the first of them, and idle.
    """
    found = list(parts)
    live = [each.time_ms for each in found if not each.is_idle]
    if live:
        return Progress(min(live), False)
    return Progress(max((each.time_ms for each in found), default=UNKNOWN), True)

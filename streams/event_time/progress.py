"""How far something is in event time, and what several together are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

UNKNOWN = -1


class Progress(NamedTuple):
    """Every record to come has a clock of `time_ms` or later, in ms; -1 while unknown.

    What `is_idle` has nothing to come for now, and holds nobody back. `sources_ms` is how far the
    sources of it were, as far as it knows, whatever is held back on the way.
    """

    time_ms: int = UNKNOWN
    is_idle: bool = False
    sources_ms: int = UNKNOWN

    def held_back(self, hold_ms: int) -> Progress:
        """Return the progress behind a node that holds records back for that long."""
        return self._replace(time_ms=max(self.time_ms - hold_ms, UNKNOWN)) if hold_ms else self


class PartProgress(NamedTuple):
    """The progress of one of several inputs.

    `origins` are the processors that took its records out of sources. If it `has_all`, it gets what
    all tasks of these have read; otherwise it is one of those tasks.
    """

    progress: Progress
    origins: frozenset[str]
    has_all: bool


def combined(parts: Iterable[PartProgress]) -> Progress:
    """Return the progress of what comes from several: the least of those that hold others back.

    If all are idle, it is as far as the first of them, and idle.
    """
    found = list(parts)
    live = [each.progress for each in holding(found)]
    if live:
        return Progress(
            min(each.time_ms for each in live), False, min(each.sources_ms for each in live)
        )
    return Progress(
        max((each.progress.time_ms for each in found), default=UNKNOWN),
        True,
        max((each.progress.sources_ms for each in found), default=UNKNOWN),
    )


def holding(parts: Sequence[PartProgress]) -> list[PartProgress]:
    """Return those that hold others back, in their order: they are not idle, or have yet to learn.

    The latter know less of the sources than another part that has nothing but records of these. So
    they were idle only before these records came, and will go on with them.
    """
    idle = {each.origins for each in parts if each.has_all and each.progress.is_idle}
    newest_ms = {
        origins: max(each.progress.sources_ms for each in parts if each.origins <= origins)
        for origins in idle
    }
    return [
        each
        for each in parts
        if not each.progress.is_idle
        or (each.has_all and each.progress.sources_ms < newest_ms[each.origins])
    ]

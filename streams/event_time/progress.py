"""Progress in event time: of one input, and of several combined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

UNKNOWN = -1


class Progress(NamedTuple):
    """Every future record has a clock of `time_ms` or later, in ms; -1 while unknown.

    An input that `is_idle` expects no records for now, and holds nothing back. `sources_ms` is the
    last known progress of its sources, without the delays of operators that hold records back.
    """

    time_ms: int = UNKNOWN
    is_idle: bool = False
    sources_ms: int = UNKNOWN

    def held_back(self, hold_ms: int) -> Progress:
        """Return the progress downstream of a node that holds records back for that long."""
        return self._replace(time_ms=max(self.time_ms - hold_ms, UNKNOWN)) if hold_ms else self


class PartProgress(NamedTuple):
    """The progress of one of several inputs.

    `origins` are the processors that read its records from sources. With `has_all`, it receives the
    records of all tasks of these processors; otherwise it is one of those tasks.
    """

    progress: Progress
    origins: frozenset[str]
    has_all: bool


def combined(parts: Iterable[PartProgress]) -> Progress:
    """Return the progress of several inputs: the least of those that hold time back.

    If all are idle, the result is idle, with the progress of the most advanced one. An input does
    not count for this if another one receives the records of all its origins: those that are held
    back on the way there come when the origins go on.
    """
    found = list(parts)
    live = [each.progress for each in holding(found)]
    if live:
        return Progress(
            min(each.time_ms for each in live), False, min(each.sources_ms for each in live)
        )
    return Progress(
        _idle_time(found), True, max((each.progress.sources_ms for each in found), default=UNKNOWN)
    )


def _idle_time(parts: Sequence[PartProgress]) -> int:
    complete: dict[frozenset[str], int] = {}
    for each in parts:
        if each.has_all:
            time_ms = each.progress.time_ms
            complete[each.origins] = min(time_ms, complete.get(each.origins, time_ms))
    times = [time_ms for at, time_ms in complete.items() if not any(at < of for of in complete)]
    times += [
        each.progress.time_ms for each in parts if not any(each.origins <= of for of in complete)
    ]
    return max(times, default=UNKNOWN)


def holding(parts: Sequence[PartProgress]) -> list[PartProgress]:
    """Return the inputs that hold time back, in order: active ones, and idle ones that lag.

    An idle input lags if one whose origins it shares is active, or knows of later progress of the
    sources: it was idle before those records, and will receive what they lead to.
    """
    active = {each.origins for each in parts if not each.progress.is_idle}
    idle = {each.origins for each in parts if each.has_all and each.progress.is_idle}
    lagging = {at for at in idle if any(of <= at for of in active)}
    newest_ms = {
        origins: max(each.progress.sources_ms for each in parts if each.origins <= origins)
        for origins in idle - lagging
    }
    return [
        each
        for each in parts
        if not each.progress.is_idle
        or (
            each.has_all
            and (each.origins in lagging or each.progress.sources_ms < newest_ms[each.origins])
        )
    ]

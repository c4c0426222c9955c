"""What the results of each use case must be, by a model in Python, and how they are compared."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.records import WrongOutputError
from benchmarks.theodolite.jobs import DAY_MS, DAYS, FIVE_SECONDS_MS, MINUTE_MS, hour_of_day
from benchmarks.theodolite.sensors import Reading, parents

Key = tuple[Any, ...]
"""What numbers are of: a line, or a sensor and a window."""
Rows = Mapping[Key, tuple[float, ...]]
"""The numbers of each key."""

STATISTICS = ("count", "sum", "min", "max", "mean", "variance")


def lines(readings: Iterable[Reading]) -> Rows:
    """Return how often each line of UC1 must come."""
    return _counted(
        f"power,sensor={each.sensor} value={each.watts} {each.timestamp}" for each in readings
    )


def minutes(readings: Iterable[Reading]) -> Rows:
    """Return the statistics of each sensor and minute, for UC2."""
    groups: defaultdict[Key, list[float]] = defaultdict(list)
    for each in readings:
        groups[each.sensor, each.timestamp // MINUTE_MS * MINUTE_MS].append(each.watts)
    return _statistics(groups)


def hours_of_day(readings: Iterable[Reading]) -> Rows:
    """Return the statistics of each sensor, hour of the day and window of days, for UC3."""
    groups: defaultdict[Key, list[float]] = defaultdict(list)
    for each in readings:
        newest = each.timestamp // DAY_MS * DAY_MS
        hour = hour_of_day(each.timestamp)
        for number in range(DAYS):
            groups[each.sensor, hour, newest - number * DAY_MS].append(each.watts)
    return _statistics(groups)


def sums(readings: Sequence[Reading]) -> Rows:
    """Return the sums of all groups in the window of the readings, for UC4.

    All of them must be in one window.
    """
    values = {each.sensor: each.watts for each in readings}
    start = min(each.timestamp for each in readings) // FIVE_SECONDS_MS * FIVE_SECONDS_MS
    found: dict[Key, tuple[float, ...]] = {}
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for member, group in parents(len(values)).items():
        groups[group].append(member)
    for group, members in groups.items():
        values[group] = math.fsum(values[member] for member in members)
        found[group, start] = len(members), values[group]
    return found


def read_lines(values: Iterable[bytes]) -> Rows:
    """Return how often each line came."""
    return _counted(value.decode() for value in values)


def last_of_each(names: Sequence[str], numbers: Sequence[str], values: Iterable[bytes]) -> Rows:
    """Return the last numbers of each row; the fields `names` say what the row is of."""
    found = {}
    for value in values:
        row = json.loads(value)
        found[tuple(row[name] for name in names)] = tuple(row[name] for name in numbers)
    return found


def read_first_sums(values: Iterable[bytes]) -> Rows:
    """Return the last sums of the groups in the first window that has any."""
    found = last_of_each(("sensor", "start"), ("count", "sum"), values)
    first = min((key[1] for key in found), default=0)
    return {key: numbers for key, numbers in found.items() if key[1] == first}


def require_equal(expected: Rows, found: Rows) -> None:
    """Raise `WrongOutputError`, with an example, if rows are missing, added or wrong."""
    missing, added = expected.keys() - found.keys(), found.keys() - expected.keys()
    wrong = [
        key
        for key in expected.keys() & found.keys()
        if not all(
            math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
            for a, b in zip(expected[key], found[key], strict=True)
        )
    ]
    parts = [
        f"{len(keys):,} rows {what}, such as {key}: {expected.get(key)} expected, "
        f"{found.get(key)} found"
        for what, keys in (("are missing", missing), ("are too many", added), ("are wrong", wrong))
        if keys
        for key in [min(keys, key=repr)]
    ]
    if parts:
        raise WrongOutputError("; ".join(parts))


def _counted(texts: Iterable[str]) -> Rows:
    return {(text,): (count,) for text, count in Counter(texts).items()}


def _statistics(groups: Mapping[Key, Sequence[float]]) -> Rows:
    return {
        key: (
            len(watts),
            math.fsum(watts),
            min(watts),
            max(watts),
            statistics.fmean(watts),
            statistics.pvariance(watts),
        )
        for key, watts in groups.items()
    }

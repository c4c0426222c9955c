"""Compares what the topology wrote with what pandas says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from examples.flights.answers import FLIGHT, PLANE, WEATHER, Answers

_EXAMPLES = 3
_COLUMNS = [*FLIGHT, *WEATHER, *PLANE, "airport"]
_START_BYTES = 8

Row = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp of a record of a topic."""
Result = tuple[tuple[object, ...], tuple[object, ...]]
HourlyDelays = tuple[tuple[str, int], tuple[int, int, int]]
"""Airline and start of the hour in ms; flights, flights that arrived, sum of their delays."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many results there are, how many there should be, and what is wrong with them."""

    what: str
    found: int
    expected: int
    problems: tuple[str, ...]


def delays_of(rows: Iterable[Row]) -> list[HourlyDelays]:
    """Return the results of topic `delays` in the form of `answers.delays`.

    A windowed key is the key, then the start of the window in ms as a 64-bit number.
    """
    results: list[HourlyDelays] = []
    for key, value, _ in rows:
        assert key is not None
        assert value is not None
        airline, start = key[:-_START_BYTES], key[-_START_BYTES:]
        results.append(_delays(airline, int.from_bytes(start), json.loads(value)))
    return results


def delays_of_sql(rows: Iterable[Row]) -> list[HourlyDelays]:
    """Return the same of a query, whose keys are airlines, and whose values have the start."""
    results: list[HourlyDelays] = []
    for airline, value, _ in rows:
        assert airline is not None
        assert value is not None
        total = json.loads(value)
        results.append(_delays(airline, total["start"], total))
    return results


def _delays(airline: bytes, start_ms: int, total: Mapping[str, int]) -> HourlyDelays:
    return (airline.decode(), start_ms), (total["flights"], total["arrived"], total["delay"])


def enriched_of(rows: Iterable[Row]) -> list[Result]:
    """Return the results of topic `enriched_flights` in the form of `answers.enriched`."""
    results: list[Result] = []
    for _, value, timestamp in rows:
        assert value is not None
        flight = json.loads(value)
        results.append(((flight["id"],), (timestamp, *(flight[column] for column in _COLUMNS))))
    return results


def compare(what: str, results: Sequence[Result], answers: Answers) -> Comparison:
    """Return the differences: every answer must be there, once, and nothing else."""
    counts = Counter(key for key, _ in results)
    mistakes = {
        "missing": [f"{key}" for key in answers if key not in counts],
        "more than once": [f"{key} {n} times" for key, n in counts.items() if n > 1],
        "not in pandas' answer": [f"{key}" for key in counts if key not in answers],
        "different": [
            f"{key}: {value}, pandas says {answers[key]}"
            for key, value in results
            if key in answers and answers[key] != value
        ],
    }
    if not answers:
        mistakes["missing"] = ["there is nothing to compare with"]
    problems = tuple(
        f"{what} {kind}: {len(found):,} ({'; '.join(found[:_EXAMPLES])})"
        for kind, found in mistakes.items()
        if found
    )
    return Comparison(what, len(results), len(answers), problems)


def none_of(what: str, rows: Sequence[Row]) -> Comparison:
    """Return that there should be no records in a topic."""
    found = [f"{value!r}" for _, value, _ in rows[:_EXAMPLES]]
    problems = (f"{what}: {len(rows):,} ({'; '.join(found)})",) if rows else ()
    return Comparison(what, len(rows), 0, problems)

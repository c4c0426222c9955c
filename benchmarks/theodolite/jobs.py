"""The use cases of Theodolite in the DSL; TheodoliteJobs.java has the same ones.

The topologies are those of https://github.com/cau-se/theodolite, with JSON instead of Avro.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from kafka_pipeline import Stream, StreamsBuilder, Table, Windowed, agg, col, serdes, windows
from kafka_pipeline.streams.dsl.windows import TimeWindows

Json = dict[str, Any]

MINUTE_MS = 60_000
DAY_MS = 86_400_000
DAYS = 30
ZONE = ZoneInfo("Europe/Paris")
_VALUE = col("valueInW")


def uc1(source: str, sink: str) -> StreamsBuilder:
    """Convert each record to the line protocol of InfluxDB, and forward it."""
    builder = _builder()
    line = (
        "power,sensor="
        + col("identifier")
        + " value="
        + _VALUE.cast(str)
        + " "
        + col("timestamp").cast(str)
    )
    lines = builder.stream(source, name="Records").map_values(line)
    lines.to(sink, value_serde=serdes.string)
    return builder


def uc2(source: str, sink: str) -> StreamsBuilder:
    """Statistics of each sensor in windows of a minute."""
    builder = _builder()
    records = builder.stream(source, name="Records")
    minutes = windows.tumbling(MINUTE_MS, grace_ms=0)
    _statistics(records, minutes).to_stream().map(_of_sensor).to(sink)
    return builder


def uc3(source: str, sink: str) -> StreamsBuilder:
    """Statistics of each sensor and hour of the day in Paris, in 30 windows of 30 days."""
    builder = _builder()
    records = builder.stream(source, name="Records").select_key(_sensor_and_hour)
    days = windows.hopping(DAYS * DAY_MS, advance_ms=DAY_MS, grace_ms=0)
    _statistics(records, days).to_stream().map(_of_hour).to(sink)
    return builder


def hour_of_day(timestamp_ms: int) -> int:
    """Return the hour of the day in Paris, 0 to 23."""
    return datetime.fromtimestamp(timestamp_ms / 1000, ZONE).hour


def _builder() -> StreamsBuilder:
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)


def _statistics(records: Stream[str, Json], spans: TimeWindows) -> Table[Windowed[str], Json]:
    return (
        records.group_by_key(name="ByKey")
        .windowed_by(spans)
        .agg(
            "Statistics",
            count=agg.count(),
            sum=agg.sum(_VALUE),
            squares=agg.sum(_VALUE * _VALUE),
            min=agg.min(_VALUE),
            max=agg.max(_VALUE),
        )
    )


def _sensor_and_hour(sensor: str, record: Json) -> str:
    return f"{sensor};{hour_of_day(record['timestamp'])}"


def _of_sensor(windowed: Windowed[str], found: Json) -> tuple[str, Json]:
    return windowed.key, {"sensor": windowed.key, **_row(windowed, found)}


def _of_hour(windowed: Windowed[str], found: Json) -> tuple[str, Json]:
    sensor, _, hour = windowed.key.partition(";")
    return sensor, {"sensor": sensor, "hour": int(hour), **_row(windowed, found)}


def _row(windowed: Windowed[str], found: Json) -> Json:
    count, total = found["count"], found["sum"]
    return {
        "start": windowed.window.start,
        "count": count,
        "sum": total,
        "min": found["min"],
        "max": found["max"],
        "mean": total / count,
        "variance": max(0.0, (found["squares"] - total * total / count) / count),
    }

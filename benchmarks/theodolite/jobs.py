"""The use cases of Theodolite in the DSL; TheodoliteJobs.java has the same ones.

The topologies are those of https://github.com/cau-se/theodolite, with JSON instead of Avro.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from kafka_pipeline import (
    Stream,
    StreamsBuilder,
    Suppress,
    Table,
    Windowed,
    agg,
    col,
    serdes,
    windows,
)
from kafka_pipeline.streams.dsl.windows import TimeWindows

Json = dict[str, Any]

MINUTE_MS = 60_000
DAY_MS = 86_400_000
DAYS = 30
ZONE = ZoneInfo("Europe/Paris")
FIVE_SECONDS_MS = 5_000
CONFIGURATION = "configuration"
"""The topic that says which groups a sensor, or a group, belongs to."""
FEEDBACK = "feedback"
"""The topic of the groups' sums, which are read again as those of sensors."""
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


def uc4(source: str, sink: str) -> StreamsBuilder:
    """Sums of groups of sensors, and of groups of groups, in windows of 5 s.

    A sum goes to the topic `feedback` with each change, and is read there like a sensor's record.
    """
    builder = _builder()
    sensors = builder.stream(source, name="Sensors")
    groups = builder.stream(FEEDBACK, name="Groups", feedback=True)
    parents: Table[str, Json] = builder.table(CONFIGURATION, name="Parents")
    last = sensors.merge(groups).to_table(name="Last")
    by_parent = last.join(parents, _with_parents).to_stream().flat_map(_for_each_parent)
    newest = (
        by_parent.group_by_key(name="ByParent")
        .windowed_by(windows.tumbling(FIVE_SECONDS_MS, grace_ms=0))
        .reduce(_newer, name="Newest")
    )
    sums = newest.group_by(_by_parent_and_window, name="ByWindow").aggregate(
        _nothing, _add, _subtract, name="Sums"
    )
    sums.to_stream().map(_as_record).to(FEEDBACK)
    held_back = sums.suppress(Suppress.until_time_limit(FIVE_SECONDS_MS), name="HeldBack")
    held_back.to_stream().map(_as_sum).to(sink)
    return builder


def hour_of_day(timestamp_ms: int) -> int:
    """Return the hour of the day in Paris, 0 to 23."""
    return datetime.fromtimestamp(timestamp_ms / 1000, ZONE).hour


def _builder() -> StreamsBuilder:
    # As Kafka Streams has caches by default.
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json, caching=True)


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


def _with_parents(record: Json, found: Json) -> Json:
    return {**record, "parents": found["parents"]}


def _for_each_parent(name: str, record: Json) -> list[tuple[str, Json]]:
    kept = {"timestamp": record["timestamp"], "valueInW": record["valueInW"]}
    return [(f"{name};{parent}", kept) for parent in record["parents"]]


def _newer(before: Json, record: Json) -> Json:
    return record if record["timestamp"] >= before["timestamp"] else before


def _by_parent_and_window(windowed: Windowed[str], record: Json) -> tuple[str, Json]:
    parent = windowed.key.partition(";")[2]
    return f"{parent};{windowed.window.start}", record


def _nothing() -> Json:
    return {"count": 0, "sum": 0.0, "timestamp": 0}


def _add(_key: str, record: Json, found: Json) -> Json:
    return {
        "count": found["count"] + 1,
        "sum": found["sum"] + record["valueInW"],
        "timestamp": max(found["timestamp"], record["timestamp"]),
    }


def _subtract(_key: str, record: Json, found: Json) -> Json:
    return {
        "count": found["count"] - 1,
        "sum": found["sum"] - record["valueInW"],
        "timestamp": found["timestamp"],
    }


def _as_record(key: str, found: Json) -> tuple[str, Json]:
    parent = key.partition(";")[0]
    record = {
        "identifier": parent,
        "timestamp": found["timestamp"],
        "valueInW": found["sum"],
    }
    return parent, record


def _as_sum(key: str, found: Json) -> tuple[str, Json]:
    parent, _, start = key.partition(";")
    return parent, {
        "sensor": parent,
        "start": int(start),
        "count": found["count"],
        "sum": found["sum"],
    }

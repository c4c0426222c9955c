"""A small class and topologies whose stores, windows, times and serdes are parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Suppress,
    Table,
    agg,
    col,
    serdes,
    stores,
    windows,
)
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.engine.topology import Topology

_WRITTEN: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda value: value,
    "string": bytes.decode,
    "json": json.loads,
    "integer": lambda value: json.loads(value)["n"],
}


class Keeps(Processor):
    """Puts each value into its store, which has any kind and serdes; forwards nothing."""

    def __init__(self, kind: str, key: str, value: str) -> None:
        self._kind, self._key, self._value = kind, _WRITTEN[key], _WRITTEN[value]

    def init(self, context: ProcessorContext) -> None:
        self._store: Any = context.get_state_store("S")

    def process(self, record: Record) -> None:
        key, value = self._key(record.key), self._value(record.value)
        time = record.timestamp
        match self._kind:
            case "key_value":
                self._store.put(key, value)
            case "timestamped_key_value":
                self._store.put(key, (value, time))
            case "session":
                self._store.put(stores.Windowed(key, stores.Window(time, time)), value)
            case _:
                self._store.put(key, value, time)


def tumbling(size_ms: int = 10, grace_ms: int = 5) -> Topology:
    """Count in windows of one size."""
    return _windowed(windows.tumbling(size_ms, grace_ms=grace_ms))


def hopping(advance_ms: int = 5) -> Topology:
    """Count in windows of 10 ms."""
    return _windowed(windows.hopping(10, advance_ms=advance_ms, grace_ms=5))


def sessions(gap_ms: int = 5) -> Topology:
    """Count in sessions."""
    return _windowed(windows.session(gap_ms, grace_ms=5))


def sliding(difference_ms: int = 5) -> Topology:
    """Count in sliding windows."""
    return _windowed(windows.sliding(difference_ms, grace_ms=5))


def days(tz: str = "UTC") -> Topology:
    """Count by days of a time zone."""
    return _windowed(windows.calendar("1 day", tz=tz, grace_ms=5))


def joined(within_ms: int = 5) -> Topology:
    """Join the records of the source with each other."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    records = builder.stream("source")
    records.join(
        records.filter(lambda key, value: bool(value)),
        lambda left, right: b"0",
        windows.join(before_ms=within_ms, after_ms=within_ms, grace_ms=5),
        name="Joined",
        value_serde=serdes.bytes,
    ).to("sink")
    return builder.build()


def counted(serde: str = "json") -> Topology:
    """Keep the last value of each key, by a serde."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.by_name(serde))
    grouped = builder.stream("source").group_by_key()
    grouped.reduce(lambda one, other: other, name="Last").to_stream().to("sink")
    return builder.build()


def _windowed(kind: Windows) -> Topology:
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    counts = builder.stream("source").group_by_key().windowed_by(kind).count(name="Counts")
    counts.to_stream().map(lambda key, count: (key.key, b"%d" % count)).to("sink")
    return builder.build()


AGGREGATIONS = {
    "count": agg.count(),
    "sum": agg.sum(col("n")),
    "mean": agg.avg(col("n")),
    "other sum": agg.sum(col("m")),
}


def fields(kept: list[str], of: str = "stream") -> Topology:
    """Keep aggregations of a stream, of windows of it, or of the groups of a table."""
    builder = StreamsBuilder(value_serde=serdes.json)
    chosen = {f"f{number}": AGGREGATIONS[name] for number, name in enumerate(kept)}
    if of == "table":
        table: Table[bytes, Any] = builder.table("numbers", name="Numbers")
        table.group_by(lambda key, value: (key, value), name="Groups").agg("Kept", **chosen)
        return builder.build()
    grouped = builder.stream("numbers", name="Numbers").group_by_key()
    if of == "windows":
        grouped.windowed_by(windows.tumbling(10, grace_ms=5)).agg("Kept", **chosen)
    else:
        grouped.agg("Kept", **chosen)
    return builder.build()


def suppressed(limit_ms: int | None = None, emit: EmitTime = "on_update") -> Topology:
    """Count in windows, and suppress for a time or until they close."""
    until = Suppress.until_window_closes()
    if limit_ms is not None:
        until = Suppress.until_time_limit(limit_ms)
    builder = StreamsBuilder()
    grouped = builder.stream("numbers", name="Numbers").group_by_key()
    windowed = grouped.windowed_by(windows.tumbling(10, grace_ms=5), emit=emit)
    windowed.count(name="Counts").suppress(until, name="Last")
    return builder.build()

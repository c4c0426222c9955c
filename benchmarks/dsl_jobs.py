"""The jobs of the benchmark in the DSL; KafkaStreamsPeer.java has the same ones."""

from __future__ import annotations

from kafka_pipeline import StreamsBuilder, serdes, value, windows
from kafka_pipeline.streams.timestamps import RecordView

TABLE = "bench_table"
"""A topic with a value for each key, and for each number of two digits."""
RIGHT = "bench_right"
"""A topic with the same records as the source."""
_ONE_WINDOW_MS = 10 * 365 * 24 * 3_600_000
"""Ten years, so that no run is in two windows."""
_GRACE_MS = 100_000_000
_MINUTE_MS = 60_000


def _builder() -> StreamsBuilder:
    return StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)


def filter_map(source: str, sink: str) -> StreamsBuilder:
    """Keep the records whose values end in 1, and change their values."""
    builder = _builder()
    kept = builder.stream(source, name="Source").filter(lambda key, value: value[-1] == "1")
    kept.map_values(lambda value: f"0{value}").to(sink)
    return builder


def filter_map_columns(source: str, sink: str) -> StreamsBuilder:
    """Do the same as `filter_map`, by column expressions."""
    builder = _builder()
    kept = builder.stream(source, name="Source").filter(value().str.ends_with("1"))
    kept.map_values("0" + value()).to(sink)
    return builder


def windowed_count(source: str, sink: str) -> StreamsBuilder:
    """Count the records of each key in tumbling windows, with a result for each record."""
    builder = _builder()
    grouped = builder.stream(source, name="Source").group_by_key(name="ByKey")
    counts = grouped.windowed_by(windows.tumbling(_ONE_WINDOW_MS, grace_ms=0)).count(name="Counts")
    results = counts.to_stream().map(lambda windowed, count: (windowed.key, str(count)))
    results.to(sink, key_serde=serdes.string, value_serde=serdes.string)
    return builder


def stream_table(source: str, sink: str) -> StreamsBuilder:
    """Join each record with the row of its key."""
    builder = _builder()
    table = builder.table(TABLE, name="Table")
    builder.stream(source, name="Source").left_join(table, lambda left, right: left).to(sink)
    return builder


def _number(record: RecordView, partition_time: int) -> int:
    return int(record.value)


def stream_stream(source: str, sink: str) -> StreamsBuilder:
    """Join each record with the one of the other topic that has the same key and number."""
    builder = _builder()
    left = builder.stream(source, name="Left", timestamp_extractor=_number)
    right = builder.stream(RIGHT, name="Right", timestamp_extractor=_number)
    same = windows.join(before_ms=0, after_ms=0, grace_ms=_GRACE_MS)
    left.join(right, lambda left, right: left, same, name="Join").to(sink)
    return builder


def foreign_key(source: str, sink: str) -> StreamsBuilder:
    """Join a table with another one by the last two digits of its values."""
    builder = _builder()
    left, right = builder.table(source, name="Left"), builder.table(TABLE, name="Right")
    joined = left.join(
        right, lambda left, right: left, foreign_key=lambda value: value[-2:], name="Join"
    )
    joined.to_stream().to(sink)
    return builder


def minute_counts(source: str, sink: str) -> StreamsBuilder:
    """Count the readings of each place and minute, with a result when the minute is over."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    readings = builder.stream(source, name="Source")
    by_place = readings.group_by(lambda user, reading: reading["place"], name="ByPlace")
    minutes = windows.tumbling(_MINUTE_MS, grace_ms=0)
    counts = by_place.windowed_by(minutes, emit="on_close").count(name="Counts")
    results = counts.to_stream().map(
        lambda windowed, count: (
            windowed.key,
            {"minute": windowed.window.start, "records": count},
        )
    )
    results.to(sink, key_serde=serdes.string, value_serde=serdes.json)
    return builder

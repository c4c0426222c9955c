"""The jobs of the benchmark in the DSL; KafkaStreamsPeer.java has the same ones."""

from __future__ import annotations

from kafka_pipeline import (
    Stream,
    StreamsBuilder,
    Suppress,
    Table,
    Windowed,
    serdes,
    value,
    windows,
)
from kafka_pipeline.streams.dsl.window_aggregates import Windows
from kafka_pipeline.streams.timestamps import RecordView

TABLE = "bench_table"
"""A topic with a value for each key, and for each number of two digits."""
RIGHT = "bench_right"
"""A topic with the same records as the source."""
_ONE_WINDOW_MS = 10 * 365 * 24 * 3_600_000
"""Ten years, so that no run is in two windows."""
_GRACE_MS = 100_000_000
_MINUTE_MS = 60_000
_FIRST_MS = 1_000_000
"""The time of record 0 in the jobs with windows; a key has a record every 10,000 ms."""
_HOP_MS = 20_000
_HOPS = 12
_SLIDING_MS = 50_000
_GAP_MS = 15_000
CLOSING_MS = 50_000
"""The size of the windows whose results are held back until they close."""


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


def _time(record: RecordView, partition_time: int) -> int:
    return _FIRST_MS + int(record.value)


def _latest(_: str, new: str) -> str:
    return new


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


def hopping(source: str, sink: str) -> StreamsBuilder:
    """Keep the latest value of each key in twelve windows at a time; pass on that of the newest."""
    hops = windows.hopping(_HOPS * _HOP_MS, advance_ms=_HOP_MS, grace_ms=0)
    builder, latest = _latest_in(hops, source)

    def is_newest(windowed: Windowed[str], number: str) -> bool:
        return windowed.window.start + _HOP_MS > _FIRST_MS + int(number)

    _pass_on(latest.to_stream().filter(is_newest), sink)
    return builder


def sliding(source: str, sink: str) -> StreamsBuilder:
    """Keep the latest value of each key in sliding windows; pass on that of a record's own one."""
    builder, latest = _latest_in(windows.sliding(_SLIDING_MS, grace_ms=0), source)

    def ends_with_it(windowed: Windowed[str], number: str) -> bool:
        return windowed.window.end == _FIRST_MS + int(number)

    _pass_on(latest.to_stream().filter(ends_with_it), sink)
    return builder


def session(source: str, sink: str) -> StreamsBuilder:
    """Keep the latest value of each key's session, which grows with each record."""
    builder, latest = _latest_in(windows.session(_GAP_MS, grace_ms=0), source)
    _pass_on(latest.to_stream().filter(lambda windowed, number: number is not None), sink)
    return builder


def suppressed(source: str, sink: str) -> StreamsBuilder:
    """Keep the latest value of each key and window, and pass it on when the window closes."""
    builder, latest = _latest_in(windows.tumbling(CLOSING_MS, grace_ms=0), source)
    last = latest.suppress(Suppress.until_window_closes(), name="Closed")
    _pass_on(last.to_stream(), sink)
    return builder


def _latest_in(spans: Windows, source: str) -> tuple[StreamsBuilder, Table[Windowed[str], str]]:
    """Return a builder, and the latest value of each key and window."""
    builder = _builder()
    grouped = builder.stream(source, name="Source", timestamp_extractor=_time).group_by_key()
    return builder, grouped.windowed_by(spans).reduce(_latest, name="Latest")


def _pass_on(results: Stream[Windowed[str], str], sink: str) -> None:
    plain = results.map(lambda windowed, number: (windowed.key, number))
    plain.to(sink, key_serde=serdes.string, value_serde=serdes.string)


def cogroup(source: str, sink: str) -> StreamsBuilder:
    """Count the records of each key in two topics."""
    builder = _builder()
    left = builder.stream(source, name="Left").group_by_key()
    right = builder.stream(RIGHT, name="Right").group_by_key()

    def one_more(key: str, number: str, count: int) -> int:
        return count + 1

    both = left.cogroup(one_more).cogroup(right, one_more)
    counts = both.aggregate(lambda: 0, name="Counts", value_serde=serdes.int64)
    counts.to_stream().map_values(str).to(sink, value_serde=serdes.string)
    return builder


def table_table(source: str, sink: str) -> StreamsBuilder:
    """Join two tables by their key."""
    builder = _builder()
    left, right = builder.table(source, name="Left"), builder.table(TABLE, name="Right")
    left.join(right, lambda left, right: left, name="Join").to_stream().to(sink)
    return builder


def table_sum(source: str, sink: str) -> StreamsBuilder:
    """Add up the values of the rows of each group: a row that changes leaves its group first."""
    builder = _builder()
    rows = builder.table(source, name="Rows")
    sums = rows.group_by(lambda key, number: (key, number), name="ByKey").aggregate(
        lambda: 0,
        lambda key, number, total: total + int(number),
        lambda key, number, total: total - int(number),
        name="Sums",
        value_serde=serdes.int64,
    )
    sums.to_stream().map_values(str).to(sink, value_serde=serdes.string)
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

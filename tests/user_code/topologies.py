"""Topologies of users: several node groups, and all that a builder can do wrong."""

from __future__ import annotations

from kafka_pipeline import (
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    TopologyBuilder,
    serdes,
    stores,
    windows,
)
from kafka_pipeline.streams.engine.topology import Topology
from kafka_pipeline.streams.errors import StreamsError


class Passing(Processor):
    """Forwards what comes."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


def chain(
    lines: str,
    words: str,
    middle: str = "middle",
    partitions: int | None = None,
    first: str = "Split",
) -> Topology:
    """Return two node groups with a topic of their own between them; the second has a store."""
    builder = TopologyBuilder()
    builder.add_source(first, lines, value_serde=serdes.json)
    builder.add_processor("Splitter", Passing, [first])
    builder.add_sink(
        "To middle", middle, ["Splitter"], key_serde=serdes.bytes, value_serde=serdes.json
    )
    builder.add_internal_topic(middle, partitions)
    builder.add_source("Count", middle, key_serde=serdes.string, auto_offset_reset="latest")
    builder.add_processor("Counter", Passing, ["Count"])
    builder.add_state_store(stores.key_value("Kept", serdes.string, serdes.int64), ["Counter"])
    builder.add_state_store(
        stores.window(
            "Windows", serdes.string, serdes.json, retention_ms=60_000, window_size_ms=1_000
        ),
        ["Counter"],
    )
    builder.add_state_store(
        stores.key_value("Scratch", serdes.string, serdes.json, logged=False), ["Counter"]
    )
    builder.add_sink("Out", words, ["Counter"], key_serde=serdes.string)
    return builder.build()


def steps(lines: str, words: str) -> TopologyBuilder:
    """Return three node groups, the last one first, with two topics of their own between them."""
    builder = TopologyBuilder()
    for name, topic, to in (
        ("Third", "two", words),
        ("Second", "one", "two"),
        ("First", lines, "one"),
    ):
        builder.add_source(name, topic)
        builder.add_sink(f"To {to}", to, [name])
    for topic in ("one", "two"):
        builder.add_internal_topic(topic)
    return builder


def join(left: str, right: str, joined: str) -> TopologyBuilder:
    """Return one node group with two sources."""
    builder = TopologyBuilder()
    for name, topic in (("Left", left), ("Right", right)):
        builder.add_source(name, topic)
    builder.add_processor("Joiner", Passing, ["Left", "Right"])
    builder.add_sink("Joined", joined, ["Joiner"])
    return builder


def impossible() -> Topology:
    """Return nothing: two things are wrong with what is built."""
    builder = TopologyBuilder()
    builder.add_source("In", "lines")
    builder.add_sink("Out", "words", ["Im"])
    builder.add_sink("Other", "more", ["Out"])
    return builder.build()


def failing(reason: str) -> TopologyBuilder:
    """Fail as code does that was never run."""
    raise LookupError(reason)


def silent() -> TopologyBuilder:
    """Fail without a word."""
    raise StreamsError


def forgetful() -> None:
    """Return nothing."""


def counted_words(lines: str, words: str, store: str = "Counts") -> StreamsBuilder:
    """Count words, by the DSL."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    each = builder.stream(lines, name="Lines").flat_map_values(str.split)
    counts = each.group_by(lambda key, word: word, name="ByWord").count(name=store)
    counts.to_stream().to(words, value_serde=serdes.int64)
    return builder


def enriched(stream: str, table: str, rows: str, out: str) -> StreamsBuilder:
    """Join a stream by another key with a table, and that table with the rows that refer to it."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    found = builder.table(table, name="Found")
    events = builder.stream(stream).select_key(lambda key, value: value)
    events.join(found, lambda left, right: left + right, name="Enriched").to(out)
    joined = builder.table(rows, name="Rows").join(
        found, lambda left, right: left + right, foreign_key=lambda value: value, name="Joined"
    )
    joined.to_stream().to(out)
    return builder


def referring_to_itself(rows: str, out: str) -> StreamsBuilder:
    """Join each row with the one that it names, and count the results per minute."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    table = builder.table(rows, name="Rows")
    joined = table.join(
        table, lambda left, right: left + right, foreign_key=lambda row: row, name="Referring"
    )
    counted = joined.to_stream().group_by_key().windowed_by(windows.tumbling(60_000, grace_ms=0))
    counts = counted.count(name="Counted").to_stream()
    counts.map(lambda found, count: (found.key, str(count))).to(out)
    return builder


def paired(left: str, right: str, out: str, hops: int = 2) -> StreamsBuilder:
    """Join two streams of a minute, of which the left one goes through several repartitions."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    one, other = (
        builder.stream(topic, name=name).select_key(lambda key, value: value)
        for topic, name in ((left, "ReadLeft"), (right, "ReadRight"))
    )
    for number in range(hops - 1):
        one = one.repartition(name=f"Hop{number}").select_key(lambda key, value: value)
    minute = windows.join(before_ms=60_000, after_ms=60_000, grace_ms=0)
    one.join(other, lambda left, right: left + right, minute, name="Paired").to(out)
    return builder


def by_value(lines: str, counts: str) -> Topology:
    """Count how often each value comes; values and counts go through a repartition topic."""
    builder = StreamsBuilder(key_serde=serdes.bytes, value_serde=serdes.bytes)
    lines_read = builder.stream(lines, name="Lines")
    counted = lines_read.group_by(lambda key, value: value, name="ByValue").count(name="Counted")
    counted.to_stream().map_values(lambda count: b"%d" % count, value_serde=serdes.bytes).to(counts)
    return builder.build()


def circle(lines: str, back: str, out: str, feedback: bool = True) -> StreamsBuilder:
    """Return counts of values per minute; what was counted comes back once, as another value."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    read = builder.stream(lines, name="Lines")
    again = builder.stream(back, name="Again", feedback=feedback)
    by_value = read.merge(again).group_by(lambda key, value: value, name="ByValue")
    counts = by_value.windowed_by(windows.tumbling(60_000, grace_ms=0)).count(name="Counts")
    results = counts.to_stream().map(lambda windowed, count: (windowed.key, str(count)))
    results.to(out)
    first = results.filter(lambda value, count: not value.startswith("again "))
    first.map_values(lambda count: f"again {count}").to(back)
    return builder


def counter_of_itself(lines: str, back: str, out: str) -> StreamsBuilder:
    """Return one node group whose records come back once."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    lines_read = builder.stream(lines, name="Lines")
    read = lines_read.merge(builder.stream(back, name="Again", feedback=True))
    read.to(out)
    read.filter_not(lambda key, value: value == "again").map_values(lambda _: "again").to(back)
    return builder


def counted_after_lookups(
    events: str,
    names: str,
    changes: str,
    tables: str,
    out: str,
    shows_rows: bool = False,
    history_ms: int | None = None,
) -> StreamsBuilder:
    """Count an hour's events by what they find in two tables, one of them of a repartition."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string)
    table = builder.table(names, name="Names", history_retention_ms=history_ms)
    found = table.filter(lambda key, value: value != "")
    moved = builder.stream(changes, name="Changes").select_key(lambda key, value: value)
    others = moved.group_by_key(name="ByValue").count(name="Counts")
    joined = builder.table(tables, name="Tables").join(found, min, name="Joined")
    events_read = builder.stream(events, name="Events")
    known = events_read.left_join(joined, lambda event, name: name or event, name="Named")
    counted = known.left_join(others, lambda event, count: event, name="Counted")
    by_hour = counted.group_by(lambda key, value: value, name="ByName").windowed_by(
        windows.tumbling(3_600_000, grace_ms=0), emit="on_close"
    )
    by_hour.count(name="Hours").to_stream().map(lambda key, value: (key.key, str(value))).to(out)
    if shows_rows:
        found.to_stream().to(out)
    return builder


def by_size(orders: str, topics: list[str] | None = None) -> StreamsBuilder:
    """Send orders to the topic that a function chooses by their size, among `topics` if given."""
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.integer)
    stream = builder.stream(orders, name="Orders")
    stream.to(lambda record: "large" if record.value > 9 else "small", topics=topics or ())
    return builder


def newest(lines: str, words: str) -> StreamsBuilder:
    """Copy only what comes from now on."""
    builder = StreamsBuilder()
    builder.stream(lines, name="Newest", auto_offset_reset="latest").to(words)
    return builder

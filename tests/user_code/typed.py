"""A user's project, as `mypy --strict` checks it: each mistake in `Mistakes` must be found."""

from __future__ import annotations

from typing import Any, assert_type

from kafka_pipeline import (
    AsyncProcessor,
    GlobalTable,
    GroupedStream,
    GroupedTable,
    Processor,
    ProcessorContext,
    Record,
    Stream,
    StreamsBuilder,
    Table,
    TopologyBuilder,
    Windowed,
    WindowedStream,
    agg,
    col,
    serdes,
    stores,
    windows,
)
from kafka_pipeline.testing import (
    ReadRecord,
    TestInputTopic,
    TestOutputTopic,
    TopologyTestDriver,
)

MINUTE = windows.join(before_ms=60_000, after_ms=0, grace_ms=0)
COUNTS = stores.key_value("Counts", serdes.string, serdes.int64)
VISITS = stores.window(
    "Visits", serdes.string, serdes.int64, retention_ms=60_000, window_size_ms=1_000
)
assert_type(COUNTS, stores.StoreBuilder[str, int])


# Tests


def words_of(driver: TopologyTestDriver) -> None:
    """The topics of a test have the types of their serdes; without any, they have bytes."""
    lines = driver.create_input_topic("lines", serdes.string, serdes.int64)
    assert_type(lines, TestInputTopic[str, int])
    assert_type(driver.create_input_topic("lines"), TestInputTopic[bytes, bytes])
    assert_type(driver.create_input_topic("lines", serdes.string), TestInputTopic[str, bytes])
    words = driver.create_output_topic("words", value_serde=serdes.int64)
    assert_type(words, TestOutputTopic[bytes, int])
    assert_type(words.read_record(), ReadRecord[bytes, int])
    assert_type(words.read_key_values(), list[tuple[bytes, int]])
    lines.pipe_input("k", 7)
    lines.pipe_input("k", None)
    lines.pipe_input("k", "seven")  # type: ignore[arg-type]


# The Processor API


class Plain(Processor):
    """Says nothing about types, so all of them are `Any`."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("Counts")

    def process(self, record: Record) -> None:
        assert_type(record, Record[Any, Any])
        self.context.forward(record.with_value(self.counts.get(record.key)))


class Typed(Processor[str, int]):
    """Says what it gets."""

    def process(self, record: Record[str, int]) -> None:
        assert_type(self.context, ProcessorContext[Any, Any])
        assert_type(record.with_value("text"), Record[str, str])
        self.context.forward(record.with_key(7))


class Average(Processor[str, int, str, float]):
    """Says what it gets and what it forwards."""

    def init(self, context: ProcessorContext[str, float]) -> None:
        super().init(context)
        self.counts = context.get_state_store("Counts", stores.KeyValueStore[str, int])
        self.visits = context.get_state_store("Visits", stores.WindowStore[str, int])

    def process(self, record: Record[str, int]) -> None:
        assert_type(record.key, str)
        assert_type(record.value, int)
        assert_type(self.counts.get(record.key), int | None)
        for time, visits in self.visits.fetch(record.key, 0, record.timestamp):
            assert_type((time, visits), tuple[int, int])
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(record.value / count))


class Later(AsyncProcessor[str, int, str, float]):
    """Says the same, and waits."""

    async def process(self, record: Record[str, int]) -> Record[str, float]:
        return record.with_value(record.value / 2)


def nodes() -> TopologyBuilder:
    """Return nodes by name, whose types nobody can follow."""
    builder = TopologyBuilder()
    builder.add_source("In", "in", key_serde=serdes.string, value_serde=serdes.int64)
    builder.add_processor("Average", Average, ["In"])
    builder.add_processor("Plain", Plain, ["In"])
    builder.add_processor("Typed", Typed, ["In"])
    builder.add_state_store(COUNTS, ["Average", "Plain"]).add_state_store(VISITS, ["Average"])
    text, number = serdes.string, serdes.float64
    builder.add_sink("Out", "out", ["Average"], key_serde=text, value_serde=number)
    return builder


# The DSL


def helper(words: Stream) -> Table:
    """Take and return what has no types."""
    return words.group_by_key().count(name="Helped")


def streams(builder: StreamsBuilder[str, int]) -> Stream[str, int]:
    """Follow the types of a stream from its source."""
    numbers = builder.stream("in")
    assert_type(numbers, Stream[str, int])
    assert_type(builder.stream("text", value_serde=serdes.string), Stream[str, str])
    assert_type(builder.stream("ids", key_serde=serdes.uuid).select_key(str_of), Stream[str, int])
    assert_type(numbers.filter(lambda key, number: number > len(key)), Stream[str, int])
    assert_type(numbers.map_values(lambda number: number / 2), Stream[str, float])
    assert_type(numbers.map_values(lambda number: str(number) or None), Stream[str, str])
    assert_type(numbers.map_values(col("a")), Stream[str, Any])
    assert_type(builder.stream("alone").map_values(halved), Stream[str, float])
    assert_type(builder.stream("waits").process(Later), Stream[str, float])
    assert_type(numbers.map(lambda key, number: (number, key)), Stream[int, str])
    assert_type(numbers.flat_map_values(lambda number: [str(number)]), Stream[str, str])
    assert_type(numbers.flat_map(lambda key, number: [(number, key)]), Stream[int, str])
    assert_type(numbers.select_key(lambda key, number: number), Stream[int, int])
    branches = numbers.split({"odd": lambda key, number: number % 2}, default="even")
    assert_type(branches["odd"].merge(branches["even"]), Stream[str, int])
    assert_type(numbers.process(Plain, stores=[COUNTS], name="Plain"), Stream[Any, Any])
    assert_type(numbers.process(Average, stores=["Counts", VISITS]), Stream[str, float])
    assert_type(numbers.process(lambda: Average(), stores=["Counts", "Visits"]), Stream[str, float])
    assert_type(numbers.process_values(Average, stores=["Counts", "Visits"]), Stream[str, float])
    return numbers


def str_of(key: object, value: object) -> str:
    """Return a key as text."""
    return str(key)


async def halved(number: int) -> float:
    """Return a half, after a while."""
    return number / 2


def aggregates(numbers: Stream[str, int]) -> None:
    """Follow the types of groups, of windows and of tables."""
    grouped = numbers.group_by_key()
    assert_type(grouped, GroupedStream[str, int])
    assert_type(numbers.group_by(lambda key, number: number, name="A"), GroupedStream[int, int])
    assert_type(grouped.count(name="B"), Table[str, int])
    assert_type(grouped.reduce(max, name="C"), Table[str, int])
    text = grouped.aggregate(lambda: "", lambda key, number, total: f"{total}{number}", name="D")
    assert_type(text, Table[str, str])
    assert_type(text.map_values(len), Table[str, int])
    assert_type(text.to_stream(), Stream[str, str])
    assert_type(grouped.agg("E", n=agg.count()), Table[str, dict[str, Any]])
    assert_type(grouped.top_n(3, by=lambda key, number: number, name="F"), Table[str, list[int]])
    windowed = grouped.windowed_by(windows.tumbling(10, grace_ms=0))
    assert_type(windowed, WindowedStream[str, int])
    counts = windowed.count(name="G")
    assert_type(counts, Table[Windowed[str], int])
    assert_type(counts.to_stream().map(started), Stream[int, int])
    both = grouped.cogroup(add_length).cogroup(text.to_stream().group_by_key(), add_text)
    assert_type(both.aggregate(lambda: 0.0, name="H"), Table[str, float])
    by_length = text.group_by(lambda key, value: (len(key), value), name="I")
    assert_type(by_length, GroupedTable[int, str])
    assert_type(by_length.count(name="J"), Table[int, int])
    assert_type(by_length.agg("K", n=agg.count()), Table[int, dict[str, Any]])


def started(key: Windowed[str], count: int) -> tuple[int, int]:
    """Return the start of a window, and its count."""
    return key.window.start, count


def add_length(key: str, number: int, total: float) -> float:
    """Add to a total."""
    return total + number


def add_text(key: str, value: str, total: float) -> float:
    """Add to a total."""
    return total + len(value)


def price_of(number: int, price: float) -> float:
    """Return the price of some."""
    return number * price


def either(left: int | None, right: str | None) -> str:
    """Return what is there."""
    return f"{left} {right}"


def joins(
    numbers: Stream[str, int], prices: Table[str, float], everywhere: GlobalTable[int, float]
) -> None:
    """Follow the types of joins; what may be missing is `None`."""
    others = numbers.map_values(str, value_serde=serdes.string)
    assert_type(
        numbers.join(others, lambda a, b: (a, b), MINUTE, name="JA"), Stream[str, tuple[int, str]]
    )
    assert_type(numbers.left_join(others, lambda a, b: b, MINUTE, name="JB"), Stream[str, str])
    assert_type(numbers.outer_join(others, either, MINUTE, name="JC"), Stream[str, str])
    assert_type(numbers.join(prices, price_of), Stream[str, float])
    assert_type(numbers.left_join(prices, lambda a, b: a * (b or 1)), Stream[str, float])
    length = numbers.join(everywhere, price_of, key=lambda key, number: len(key))
    assert_type(length, Stream[str, float])
    totals = numbers.group_by_key().reduce(max, name="JD")
    assert_type(totals.join(prices, price_of), Table[str, float])
    assert_type(totals.outer_join(prices, lambda a, b: f"{a} {b}"), Table[str, str])
    by_value = totals.join(prices, price_of, foreign_key=lambda number: str(number), name="JE")
    assert_type(by_value, Table[str, float])
    by_both = totals.join(prices, price_of, foreign_key=lambda key, number: key, name="JF")
    assert_type(by_both, Table[str, float])


def typed() -> StreamsBuilder[str, int]:
    """Return a topology that has all of this."""
    assert_type(StreamsBuilder(), StreamsBuilder[bytes, bytes])
    assert_type(StreamsBuilder(value_serde=serdes.json), StreamsBuilder[bytes, Any])
    builder = StreamsBuilder(
        key_serde=serdes.string, value_serde=serdes.int64, allow_generated_names=True
    )
    assert_type(builder, StreamsBuilder[str, int])
    prices = builder.table("prices", value_serde=serdes.float64)
    assert_type(prices, Table[str, float])
    everywhere = builder.global_table(
        "everywhere", name="Everywhere", key_serde=serdes.int64, value_serde=serdes.float64
    )
    assert_type(everywhere, GlobalTable[int, float])
    numbers = streams(builder)
    joins(numbers, prices, everywhere)
    aggregates(numbers)
    prices.to_stream().to("out", value_serde=serdes.float64)
    helper(numbers)
    return builder


# What is wrong


class ForwardsText(Processor[str, int, str, float]):
    """Forwards text instead of a number."""

    def process(self, record: Record[str, int]) -> None:
        self.context.forward(record.with_value("x"))  # type: ignore[arg-type]


class TakesText(Processor[str, int]):
    """Gets a number, but takes text."""

    def process(self, record: Record[str, str]) -> None:  # type: ignore[override]
        """Do nothing."""


class Mistakes:
    """Calls with arguments of wrong types; nobody runs them."""

    def __init__(
        self, numbers: Stream[str, int], prices: Table[str, float], everywhere: GlobalTable
    ) -> None:
        self.numbers, self.prices, self.everywhere = numbers, prices, everywhere

    def of_streams(self) -> None:
        """Serdes, functions and processors that do not fit the stream."""
        numbers = self.numbers
        numbers.to("out", value_serde=serdes.string)  # type: ignore[arg-type]
        numbers.filter(lambda key, number: number.upper())  # type: ignore[attr-defined]
        numbers.map_values(len)  # type: ignore[arg-type]
        numbers.map_values(str, value_serde=serdes.int64)  # type: ignore[arg-type]
        numbers.select_key(str_of, key_serde=serdes.int64)  # type: ignore[arg-type]
        numbers.merge(numbers.map_values(str))  # type: ignore[arg-type]
        numbers.map_values(str).process(Average)  # type: ignore[arg-type]
        numbers.process(str)  # type: ignore[arg-type]

    def of_aggregates(self) -> None:
        """Functions that do not fit the groups; a field that is not an aggregation."""
        grouped = self.numbers.group_by_key()
        grouped.aggregate(str, add_length)  # type: ignore[misc]
        grouped.aggregate(lambda: 0)  # type: ignore[call-arg]
        grouped.aggregate(total=agg.count())  # type: ignore[call-arg]
        grouped.agg(total=7)  # type: ignore[arg-type]
        grouped.agg(total=agg.count(), name="Total")  # type: ignore[arg-type]
        grouped.count(value_serde=serdes.string)  # type: ignore[arg-type]

    def of_joins(self) -> None:
        """Arguments that are for a join with something else; what may be missing."""
        numbers, prices, everywhere = self.numbers, self.prices, self.everywhere
        totals = numbers.group_by_key().count()
        numbers.join(numbers, max)  # type: ignore[call-overload]
        numbers.join(numbers, max, MINUTE, grace_ms=1)  # type: ignore[call-overload]
        numbers.join(prices, price_of, MINUTE)  # type: ignore[call-overload]
        numbers.join(prices, price_of, key=str_of)  # type: ignore[call-overload]
        numbers.join(everywhere, price_of)  # type: ignore[call-overload]
        numbers.join(everywhere, price_of, key=str_of, grace_ms=1)  # type: ignore[call-overload]
        numbers.join(7, price_of)  # type: ignore[call-overload]
        numbers.left_join(prices, price_of)  # type: ignore[arg-type]
        numbers.outer_join(prices, price_of, MINUTE)  # type: ignore[arg-type]
        numbers.select_key(lambda key, number: number).join(prices, price_of)  # type: ignore[arg-type]
        totals.join(numbers, price_of)  # type: ignore[call-overload]
        totals.left_join(prices, price_of)  # type: ignore[arg-type]
        totals.join(prices, price_of, windows=MINUTE)  # type: ignore[call-overload]
        totals.join(prices, price_of, foreign_key=7)  # type: ignore[call-overload]

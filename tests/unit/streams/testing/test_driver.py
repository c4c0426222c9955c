"""The test driver: examples of the KIPs as users would write them, topics, time and mistakes."""

from __future__ import annotations

import decimal
import re

import pytest

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsError,
    Topology,
    TopologyBuilder,
    serdes,
    stores,
)
from kafka_pipeline.testing import ReadRecord, TopologyTestDriver
from tests.unit.streams.nodes import Each, calling, one, starting

# KIP-28: counting words


class WordCount(Processor):
    """Counts the words of lines; every second of stream time, sends all counts in order."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.counts = context.get_state_store("counts")
        context.schedule(1000, PunctuationType.STREAM_TIME, self.send_all)

    def process(self, record: Record) -> None:
        for word in record.value.split():
            self.counts.put(word, (self.counts.get(word) or 0) + 1)

    def send_all(self, time: int) -> None:
        with self.counts.range("a", "z") as words:
            for word, count in words:
                self.context.forward(Record(word, count, time))


def word_count() -> Topology:
    builder = TopologyBuilder()
    builder.add_source("lines", "lines", value_serde=serdes.string)
    builder.add_processor("count", WordCount, "lines")
    builder.add_state_store(stores.key_value("counts", serdes.string, serdes.int64), "count")
    builder.add_sink("words", "words", "count", key_serde=serdes.string, value_serde=serdes.int64)
    return builder.build()


def test_words_are_counted_and_sent_every_second() -> None:
    with TopologyTestDriver(word_count()) as driver:
        lines = driver.create_input_topic("lines", value_serde=serdes.string)
        words = driver.create_output_topic("words", serdes.string, serdes.int64)

        lines.pipe_input(None, "to be or not to be", timestamp=100)
        assert words.read_key_values() == [("be", 2), ("not", 1), ("or", 1), ("to", 2)]

        lines.pipe_input(None, "be zz", timestamp=900)
        assert words.size == 0

        lines.pipe_input(None, "not", timestamp=1000)
        assert words.read_records() == [
            Record("be", 3, 1000),
            Record("not", 2, 1000),
            Record("or", 1, 1000),
            Record("to", 2, 1000),
        ]
        counts = driver.get_key_value_store("counts")
        assert counts.get("zz") == 1
        with counts.reverse_range(None, "not") as entries:
            assert list(entries) == [("not", 2), ("be", 3)]


# KIP-614: scanning by a prefix


class OfCustomer(Processor):
    """Stores orders under customer and number; a record without a value asks for a customer's."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.orders = context.get_state_store("orders")

    def process(self, record: Record) -> None:
        if record.value is not None:
            self.orders.put(record.key, record.value)
            return
        with self.orders.prefix_scan(record.key, serdes.string) as orders:
            self.context.forward(record.with_value(",".join(value for _, value in orders)))


def test_all_keys_with_a_prefix_are_found() -> None:
    builder = TopologyBuilder()
    builder.add_source("orders", "orders", key_serde=serdes.string, value_serde=serdes.string)
    builder.add_processor("by customer", OfCustomer, "orders", stores="orders")
    builder.add_state_store(stores.key_value("orders", serdes.string, serdes.string))
    builder.add_sink(
        "out", "out", "by customer", value_serde=serdes.string, key_serde=serdes.string
    )
    with TopologyTestDriver(builder.build()) as driver:
        orders = driver.create_input_topic("orders", serdes.string, serdes.string)
        for key in ("ann/2", "bob/1", "ann/10", "anna/1", "ann/1"):
            orders.pipe_input(key, f"<{key}>")
        orders.pipe_input("ann/", None)
        orders.pipe_input("nobody", None)
        assert driver.create_output_topic(
            "out", serdes.string, serdes.string
        ).read_key_values() == [
            ("ann/", "<ann/1>,<ann/10>,<ann/2>"),
            ("nobody", ""),
        ]


# KIP-837: several partitions, or none


def to_even_ones(topic: str, key: str, value: str, num_partitions: int) -> set[int] | None:
    if value == "drop":
        return set()
    if value == "default":
        return None
    return set(range(0, num_partitions, 2))


def test_a_partitioner_sends_to_several_partitions_to_none_or_leaves_the_choice() -> None:
    builder = TopologyBuilder()
    builder.add_source("in", "in", key_serde=serdes.string, value_serde=serdes.string)
    builder.add_sink(
        "out",
        "out",
        "in",
        key_serde=serdes.string,
        value_serde=serdes.string,
        partitioner=to_even_ones,
    )
    with TopologyTestDriver(builder.build(), partitions={"out": 5}) as driver:
        source = driver.create_input_topic("in", serdes.string, serdes.string)
        out = driver.create_output_topic("out", serdes.string, serdes.string)
        for value in ("even", "drop", "default"):
            source.pipe_input("k", value)
        records = out.read_records()
        assert [(record.value, record.partition) for record in records[:3]] == [
            ("even", 0),
            ("even", 2),
            ("even", 4),
        ]
        # murmur2 of "k", as Java's clients choose.
        assert [(record.value, record.partition) for record in records[3:]] == [("default", 2)]
        assert driver.metrics["dropped_records_total"] == 1
        assert driver.metrics["records_out_total"] == 4


# KIP-353: two topics, of which one comes late


def two_topics() -> Topology:
    builder = TopologyBuilder()
    builder.add_source("a", "topic-a")
    builder.add_source("b", "topic-b")
    builder.add_sink("sink", "out", ["a", "b"])
    return builder.build()


def test_a_task_waits_for_the_topic_that_comes_late() -> None:
    with TopologyTestDriver(two_topics(), max_task_idle_ms=1000) as driver:
        a = driver.create_input_topic("topic-a")
        b = driver.create_input_topic("topic-b")
        out = driver.create_output_topic("out")

        a.pipe_input(None, b"a20", timestamp=20)
        driver.advance_wall_clock_time(999)
        assert out.size == 0

        b.pipe_input(None, b"b10", timestamp=10)
        assert [value for _, value in out.read_key_values()] == [b"b10"]
        assert driver.metrics["enforced_processing_total"] == 0

        driver.advance_wall_clock_time(1000)
        assert [value for _, value in out.read_key_values()] == [b"a20"]
        assert driver.metrics["enforced_processing_total"] == 1
        assert driver.metrics["enforced_processing_rate"] == pytest.approx(1 / 60)
        driver.advance_wall_clock_time(60_000)
        assert driver.metrics["enforced_processing_rate"] == 0


def test_by_default_the_driver_knows_that_nothing_more_comes() -> None:
    with TopologyTestDriver(two_topics()) as driver:
        driver.create_input_topic("topic-a").pipe_input(None, b"a20", timestamp=20)
        driver.create_input_topic("topic-b").pipe_input(None, b"b10", timestamp=10)
        out = driver.create_output_topic("out").read_key_values()
        assert [value for _, value in out] == [b"a20", b"b10"]


def test_waiting_ends_when_both_topics_have_records() -> None:
    with TopologyTestDriver(two_topics(), max_task_idle_ms=1000) as driver:
        a = driver.create_input_topic("topic-a")
        b = driver.create_input_topic("topic-b")
        out = driver.create_output_topic("out")
        a.pipe_input(b"A", b"alpha")
        driver.advance_wall_clock_time(1)
        assert out.read_key_values() == []
        b.pipe_input(b"B", b"beta")
        assert out.read_key_values() == [(b"A", b"alpha")]
        driver.advance_wall_clock_time(1000)
        assert out.read_key_values() == [(b"B", b"beta")]


# Time


def test_punctuations_by_stream_time_follow_the_records() -> None:
    fired: list[int] = []
    schedule = starting(lambda c: c.schedule(10, PunctuationType.STREAM_TIME, fired.append))
    with TopologyTestDriver(one(schedule)) as driver:
        source = driver.create_input_topic("in")
        for timestamp in (42, 42, 51, 52, 61, 65, 71, 72, 95, 101, 102):
            source.pipe_input(None, b"x", timestamp)
    assert fired == [42, 51, 61, 71, 95, 101]


def test_punctuations_by_the_wall_clock_follow_the_driver() -> None:
    fired: list[int] = []
    schedule = starting(lambda c: c.schedule(10, PunctuationType.WALL_CLOCK_TIME, fired.append))
    with TopologyTestDriver(one(schedule)) as driver:
        for milliseconds in (5, 9, 1, 20, 5):
            driver.advance_wall_clock_time(milliseconds)
        driver.create_input_topic("in").pipe_input(None, b"x", timestamp=10**9)
    assert fired == [14, 35, 40]


def test_the_wall_clock_begins_where_it_is_told_and_only_goes_forward() -> None:
    told: list[int] = []
    tell = calling(lambda context, record: told.append(context.current_system_time))
    with TopologyTestDriver(one(tell), initial_wall_clock_ms=7) as driver:
        source = driver.create_input_topic("in")
        source.pipe_input(None, b"x")
        driver.advance_wall_clock_time(0)
        driver.advance_wall_clock_time(3)
        source.pipe_input(None, b"x")
        with pytest.raises(ValueError, match="advance_ms=-1"):
            driver.advance_wall_clock_time(-1)
        assert driver.now_ms == 10
    assert told == [7, 10]


@pytest.mark.parametrize(
    ("start", "advance", "timestamps"),
    [(None, 0, [5, 5]), (100, 0, [100, 100]), (100, 7, [100, 107])],
)
def test_records_without_a_timestamp_get_that_of_the_topic_or_of_the_wall_clock(
    start: int | None, advance: int, timestamps: list[int]
) -> None:
    with TopologyTestDriver(one(Each), initial_wall_clock_ms=5) as driver:
        source = driver.create_input_topic("in", start_timestamp=start, auto_advance_ms=advance)
        source.pipe_input(None, b"1")
        source.pipe_input(None, b"2", timestamp=1)
        source.pipe_input(None, b"3")
        records = driver.create_output_topic("out").read_records()
    assert [records[0].timestamp, records[2].timestamp] == timestamps
    assert records[1].timestamp == 1


# Topics


def test_records_come_out_with_all_that_they_had(driver: TopologyTestDriver) -> None:
    headers = [("h", b"1"), ("h", None)]
    source = driver.create_input_topic("in")
    source.pipe_records([Record(b"k", b"v", 7, headers), Record(None, None, 8)])
    first, second = driver.create_output_topic("out").read_records()
    assert first == Record(b"k", b"v", 7, headers)
    assert second == Record(None, None, 8)
    assert (first.topic, first.partition) == ("out", 0)
    assert repr(second) == "Record(None, None, 8, [], topic='out', partition=0)"


def test_topics_have_serdes_of_their_own(driver: TopologyTestDriver) -> None:
    source = driver.create_input_topic("in", serdes.int32, serdes.string)
    source.pipe_input(258, "ü")
    raw = driver.create_output_topic("out").read_record()
    assert (raw.key, raw.value) == (b"\0\0\1\2", b"\xc3\xbc")
    read = driver.create_output_topic("out", serdes.int32, serdes.string).read_record()
    assert (read.key, read.value) == (258, "ü")


def test_reading_goes_on_where_it_stopped(driver: TopologyTestDriver) -> None:
    source = driver.create_input_topic("in")
    out = driver.create_output_topic("out")
    for value in (b"1", b"2", b"3"):
        source.pipe_input(None, value)
    assert out.size == 3
    assert out.read_record().value == b"1"
    assert out.size == 2
    assert out.read_key_values() == [(None, b"2"), (None, b"3")]
    assert out.size == 0
    with pytest.raises(StreamsError, match="topic out has no more records"):
        out.read_record()


def test_a_topic_that_nothing_was_written_to_yet_is_empty(driver: TopologyTestDriver) -> None:
    out = driver.create_output_topic("out")
    assert out.size == 0
    assert out.read_records() == []


def test_what_was_piped_in_can_be_read_too(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("in").pipe_input(b"k", b"v", timestamp=3)
    assert driver.create_output_topic("in").read_record() == ReadRecord(b"k", b"v", 3)


def test_a_function_chooses_the_topic_of_each_record() -> None:
    builder = TopologyBuilder()
    builder.add_source("in", "in", value_serde=serdes.string)
    builder.add_sink("out", lambda r: f"out-{r.value}", "in", value_serde=serdes.string)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", value_serde=serdes.string)
        for value in ("a", "b", "a"):
            source.pipe_input(None, value)
        assert driver.create_output_topic("out-a").size == 2
        assert driver.create_output_topic("out-b").size == 1


def test_topics_that_a_function_may_choose_are_those_that_can_be_read() -> None:
    builder = TopologyBuilder()
    builder.add_source("in", "in")
    builder.add_sink("out", lambda r: "large", "in", topics=["large", "small"])
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input(None, b"x")
        assert [driver.create_output_topic(name).size for name in ("large", "small")] == [1, 0]
        with pytest.raises(StreamsError, match="nothing in the topology writes topic smal"):
            driver.create_output_topic("smal")


@pytest.mark.parametrize("answer", ["", None, 7])
def test_a_function_must_choose_a_topic(answer: object) -> None:
    builder = TopologyBuilder()
    builder.add_source("in", "in")
    builder.add_sink("out", lambda record: answer, "in")  # type: ignore[arg-type, return-value]
    with TopologyTestDriver(builder.build()) as driver:
        message = f'sink "out" got {answer!r} from its function: it must return the name of a topic'
        with pytest.raises(StreamsError, match=re.escape(message)):
            driver.create_input_topic("in").pipe_input(None, b"x")


def test_a_pattern_reads_the_topics_that_exist() -> None:
    builder = TopologyBuilder()
    builder.add_source("some", re.compile(r"in-\d"))
    builder.add_sink("out", lambda record: "out", "some")
    with TopologyTestDriver(builder.build(), partitions={"in-1": 1, "in-2": 1, "x": 1}) as driver:
        for name in ("in-1", "in-2"):
            driver.create_input_topic(name).pipe_input(None, name.encode())
        assert driver.create_output_topic("out").read_key_values() == [
            (None, b"in-1"),
            (None, b"in-2"),
        ]
        with pytest.raises(StreamsError, match="topic in-3 matches the pattern of a source, but"):
            driver.create_input_topic("in-3")
        with pytest.raises(StreamsError, match="no source of the topology reads topic x"):
            driver.create_input_topic("x")


# Several groups


class Split(Processor):
    """Makes words of lines."""

    def process(self, record: Record) -> None:
        for word in record.value.split():
            self.context.forward(Record(word, 1, record.timestamp))


class Sum(BatchProcessor):
    """Adds values up by their keys."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.sums = context.get_state_store("sums")

    def process(self, batch: Batch) -> None:
        sums = []
        for key, value in zip(batch.keys, batch.values, strict=True):
            sums.append((self.sums.get(key) or 0) + value)
            self.sums.put(key, sums[-1])
        self.context.forward(batch.with_values(sums))


def chained() -> Topology:
    """Return three groups, the first two with topics between them."""
    text, number = serdes.string, serdes.int64
    builder = TopologyBuilder()
    builder.add_source("lines", "lines", value_serde=text)
    builder.add_processor("split", Split, "lines")
    builder.add_sink("to words", "words", "split", key_serde=text, value_serde=number)
    builder.add_internal_topic("words")
    builder.add_source("words", "words", key_serde=text, value_serde=number)
    builder.add_processor("sum", Sum, "words", stores="sums")
    builder.add_state_store(stores.key_value("sums", text, number))
    builder.add_sink("out", "out", "sum", key_serde=text, value_serde=number)
    builder.add_source("other", "other")
    builder.add_sink("copy", "copy", "other")
    return builder.build()


def test_groups_that_are_chained_by_topics_run_before_pipe_input_returns() -> None:
    with TopologyTestDriver(chained(), partitions={"words": 3}) as driver:
        lines = driver.create_input_topic("lines", value_serde=serdes.string)
        lines.pipe_input(None, "a b a", timestamp=5)
        out = driver.create_output_topic("out", serdes.string, serdes.int64)
        assert out.read_records() == [Record("a", 1, 5), Record("b", 1, 5), Record("a", 2, 5)]
        assert driver.get_state_store("sums").get("a") == 2
        # An internal topic can be read and written as any other.
        assert driver.create_output_topic("words").size == 3
        words = driver.create_input_topic("words", serdes.string, serdes.int64)
        words.pipe_input("a", 10)
        assert out.read_key_values() == [("a", 12)]


def test_metrics_are_sums_over_all_groups() -> None:
    with TopologyTestDriver(chained()) as driver:
        lines = driver.create_input_topic("lines", value_serde=serdes.string)
        lines.pipe_input(None, "a b a")
        driver.create_input_topic("other").pipe_input(None, b"x")
        assert driver.metrics == {
            "records_in_total": 5,
            "records_out_total": 7,
            "skipped_records_total": 0,
            "dead_letters_total": 0,
            "dropped_records_total": 0,
            "enforced_processing_total": 0,
            "enforced_processing_rate": 0,
        }


def test_outputs_stand_in_the_order_of_processing_where_a_group_reads_what_it_writes() -> None:
    def again(context: ProcessorContext, record: Record) -> None:
        if not record.value.startswith(b"again-"):
            context.forward(record.with_value(b"again-" + record.value), "back")
        context.forward(record, "sink")

    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("again", calling(again), "source")
    builder.add_sink("back", "in", "again")
    builder.add_sink("sink", "out", "again")
    builder.add_internal_topic("in")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input(b"B", b"beta")
        assert driver.create_output_topic("out").read_key_values() == [
            (b"B", b"beta"),
            (b"B", b"again-beta"),
        ]


def test_what_punctuations_send_goes_on_to_other_groups() -> None:
    schedule = starting(
        lambda context: context.schedule(
            10,
            PunctuationType.WALL_CLOCK_TIME,
            lambda time: context.forward(Record(None, b"t", time)),
        )
    )
    builder = TopologyBuilder()
    builder.add_source("first", "in")
    builder.add_processor("ticks", schedule, "first")
    builder.add_sink("middle", "middle", "ticks")
    builder.add_internal_topic("middle")
    builder.add_source("second", "middle")
    builder.add_sink("last", "out", "second")
    with TopologyTestDriver(builder.build()) as driver:
        driver.advance_wall_clock_time(10)
        assert driver.create_output_topic("out").read_records() == [Record(None, b"t", 10)]


def test_what_init_forwards_goes_on_to_other_groups() -> None:
    """In whatever order the driver makes the groups."""

    def forward(context: ProcessorContext) -> None:
        context.forward(Record(b"k", b"first", 5))

    builder = TopologyBuilder()
    builder.add_source("In", "in")
    builder.add_processor("Starting", starting(forward), ["In"])
    builder.add_sink("Sent", "between", ["Starting"])
    builder.add_internal_topic("between")
    builder.add_source("Again", "between")
    builder.add_sink("Out", "out", ["Again"])
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"second", 6)
        for topic in ("between", "out"):
            found = driver.create_output_topic(topic).read_key_values()
            assert found == [(b"k", b"first"), (b"k", b"second")]


def test_the_context_has_the_name_of_the_application() -> None:
    told: list[str] = []
    tell = calling(lambda context, record: told.append(context.application_id))
    with TopologyTestDriver(one(tell), application_id="app") as driver:
        driver.create_input_topic("in").pipe_input(None, b"x")
    assert told == ["app"]


def test_context_variables_that_a_task_sets_hold_for_it_alone() -> None:
    """As on a cluster, where the precision of `decimal` is not that of another task or test."""
    seen: dict[str, int] = {}

    class Rounding(Processor):
        def init(self, context: ProcessorContext) -> None:
            decimal.getcontext().prec = 5

        def process(self, record: Record) -> None:
            seen["rounding"] = decimal.getcontext().prec

        def close(self) -> None:
            seen["close"] = decimal.getcontext().prec

    builder = TopologyBuilder()
    other = calling(lambda context, record: seen.update(other=decimal.getcontext().prec))
    for name, supplier in (("a", Rounding), ("b", other)):
        builder.add_source(name, name)
        builder.add_processor(f"processor {name}", supplier, name)
    default = decimal.getcontext().prec
    with TopologyTestDriver(builder.build()) as driver:
        for name in ("a", "b"):
            driver.create_input_topic(name).pipe_input(None, b"x")
    assert seen == {"rounding": 5, "other": default, "close": 5}
    assert decimal.getcontext().prec == default

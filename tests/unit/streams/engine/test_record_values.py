"""Reasons and dead letters quote nothing of records, unless `log_record_values` is set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    PartitionError,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordRejectedError,
    SerializationError,
    StreamsBuilder,
    StreamsError,
    TopologyBuilder,
    col,
    serdes,
    stores,
)
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import TopicLimits
from kafka_pipeline.streams.builtin.count import COUNTS, CountProcessor
from kafka_pipeline.streams.builtin.sum import SumProcessor
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.serdes import Serde
from tests.unit.streams.nodes import Nodes, OutputTopics, Tasks, calling

CARD = b"4111111111111111"
TEXT = CARD.decode()

FAIL = GroupSettings()
DEAD_LETTER = GroupSettings(on_error=OnError.DEAD_LETTER_ALL, dead_letter_topic="dead")
HINT = "; log_record_values: true shows its message"


class OrderError(Exception):
    """An error of a user."""


def of(
    process: Callable[..., None] | None = None,
    *,
    source: dict[str, Any] | None = None,
    sink: dict[str, Any] | None = None,
    supplier: Callable[[], Any] | None = None,
    topic: Any = "out",
    store: Any = None,
) -> NodeGroup:
    def forward(context: ProcessorContext, record: Record) -> None:
        context.forward(record)

    text = {"key_serde": serdes.string, "value_serde": serdes.string}
    builder = TopologyBuilder()
    builder.add_source("orders", "in", **(text | (source or {})))
    builder.add_processor("Enrich", supplier or calling(process or forward), "orders")
    builder.add_sink("prices", topic, "Enrich", **(text | (sink or {})))
    if store is not None:
        builder.add_state_store(store, "Enrich")
    return builder.build().groups[0]


def raising(make: Callable[[Record], Exception]) -> Callable[..., None]:
    def process(context: ProcessorContext, record: Record) -> None:
        raise make(record)

    return process


def as_number(context: ProcessorContext, record: Record) -> None:
    int(record.value + "x")


def looked_up(context: ProcessorContext, record: Record) -> None:
    {"a": 1}[record.value]


def parsed(context: ProcessorContext, record: Record) -> None:
    datetime.fromisoformat(record.value + "x")


def chained(context: ProcessorContext, record: Record) -> None:
    try:
        looked_up(context, record)
    except KeyError as error:
        error.add_note(record.value)
        raise OrderError(f"no {record.value}") from error


def grouped(context: ProcessorContext, record: Record) -> None:
    raise ExceptionGroup(record.value, [ValueError(record.value)])


def formatted(context: ProcessorContext, record: Record) -> None:
    raise TypeError(f"{record.value} is not a card")


def attribute(context: ProcessorContext, record: Record) -> None:
    getattr(record, f"card{record.value}")


def keyword(context: ProcessorContext, record: Record) -> None:
    as_number(**{record.value: 1})  # type: ignore[arg-type]


def module(context: ProcessorContext, record: Record) -> None:
    __import__("m" + record.value)


def evaluated(context: ProcessorContext, record: Record) -> None:
    eval(f"card{record.value}")


def opened(context: ProcessorContext, record: Record) -> None:
    Path(f"/nowhere/{record.value}").read_bytes()


def to_child(context: ProcessorContext, record: Record) -> None:
    context.forward(record, child=record.value)


def from_store(context: ProcessorContext, record: Record) -> None:
    context.get_state_store(record.value)


def at_interval(context: ProcessorContext, record: Record) -> None:
    context.schedule(record.value, PunctuationType.STREAM_TIME, print)


def at_time(context: ProcessorContext, record: Record) -> None:
    store: Any = context.get_state_store("Prices")
    store.put("k", ("v", -int(record.value)))


def into_store(context: ProcessorContext, record: Record) -> None:
    store: Any = context.get_state_store("Prices")
    store.put("k", (record, 1))


def stamped(context: ProcessorContext, record: Record) -> None:
    context.forward(record.with_timestamp(-int(record.value)))


class Async(AsyncProcessor):
    async def process(self, record: Record) -> Record:
        raise ValueError(f"{record.value} is refused")


def failing(words: str) -> Callable[..., Any]:
    """Return a function of any arguments that quotes the last of them."""

    def fail(*arguments: Any) -> Any:
        raise ValueError(f"{words} {arguments!r}")

    return fail


def refuse(value: Any) -> Any:
    raise SerializationError(f"{value} cannot be written")


def read_value(record: Any, time_ms: int) -> int:
    raise LookupError(record.value)


def expressions() -> NodeGroup:
    builder = StreamsBuilder()
    built = builder.stream("in", key_serde=serdes.string, value_serde=serdes.json)
    built.map_values(col("a").cast(int) + 1).to("out", value_serde=serdes.json)
    return builder.build().groups[0]


PRICES_BY_CARD: dict[str, int] = {}
PRICES = stores.timestamped_key_value("Prices", serdes.string, serdes.string)

QUOTING = {
    "int": of(as_number),
    "KeyError": of(looked_up),
    "library": of(parsed),
    "chained": of(chained),
    "group": of(grouped),
    "TypeError of its own": of(formatted),
    "attribute": of(attribute),
    "import": of(module),
    "file": of(opened),
    "eval": of(evaluated),
    "mistake": of(keyword),
    "user-defined": of(raising(lambda record: OrderError(record.value))),
    "raised engine error": of(raising(lambda record: StreamsError(f"{record.value} is wrong"))),
    "not implemented": of(raising(lambda record: NotImplementedError(record.value))),
    "key": of(raising(lambda record: ValueError(record.key))),
    "header": of(raising(lambda record: ValueError(record.headers))),
    "child": of(to_child),
    "store name": of(from_store),
    "interval": of(at_interval),
    "time": of(at_time, store=PRICES),
    "async": of(supplier=Async),
    "extractor": of(source={"timestamp_extractor": read_value}),
    "deserializer": of(source={"value_serde": Serde("card", refuse, failing("read"))}),
    "key deserializer": of(source={"key_serde": Serde("card", refuse, failing("read"))}),
    "serializer": of(sink={"value_serde": Serde("card", refuse, refuse)}),
    "key serializer": of(sink={"key_serde": Serde("card", failing("write"), refuse)}),
    "partitioner": of(sink={"partitioner": failing("partition")}),
    "partition": of(sink={"partitioner": lambda topic, key, value, count: {int(value)}}),
    "chooser": of(topic=failing("topic")),
    "chosen topic": of(topic=lambda record: int(record.value)),
    "chosen name": of(topic=lambda record: f"{record.value}/x"),
    "name of no choice": of(topic=lambda record: record.value, sink={"topics": ["low", "high"]}),
}
SILENT = {
    "sum": of(source={"value_serde": serdes.bytes}, supplier=SumProcessor),
    "count": of(
        source={"key_serde": serdes.bytes, "value_serde": serdes.bytes},
        supplier=CountProcessor,
        store=COUNTS,
    ),
    "source": of(source={"value_serde": serdes.int32}),
    "sink": of(sink={"value_serde": serdes.int64}),
    "store": of(into_store, store=PRICES),
    "timestamp": of(stamped),
    "expression": expressions(),
}
"""What fails without a word about the record, whatever is set."""


def record(key: bytes | None = CARD, value: bytes = CARD) -> RecordBatch:
    return RecordBatch("in", 0, [key], [value], [1], [0], [[("card", CARD)]])


def reason_of(group: NodeGroup, batch: RecordBatch, *, values: bool) -> str:
    """Return why a task fails on a record."""
    task = Tasks(group, FAIL, OutputTopics(), log_record_values=values)
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(batch)
    return str(raised.value)


def letter_of(group: NodeGroup, batch: RecordBatch, *, values: bool) -> dict[str, str]:
    """Return the headers that a record gets as a dead letter."""
    task = Tasks(group, DEAD_LETTER, OutputTopics(), log_record_values=values)
    task.task.add(batch)
    task.task.step(0, task.partitions)
    ((output,), _) = task.task.take()
    assert isinstance(output, tuple)
    headers = {name: (value or b"").decode() for name, value in output[5] or []}
    assert headers.pop("card") == TEXT
    return headers


@pytest.mark.parametrize("group", QUOTING.values(), ids=QUOTING.keys())
def test_what_quotes_a_record_is_in_no_reason_and_no_header(group: NodeGroup) -> None:
    reason = reason_of(group, record(), values=False)
    assert TEXT not in reason
    assert "test_record_values.py:" in reason
    assert "record in[0]@0: " in reason
    assert HINT in reason
    headers = letter_of(group, record(), values=False)
    assert TEXT not in str(headers)
    assert headers["__streams.errors.message"] in reason


@pytest.mark.parametrize("group", QUOTING.values(), ids=QUOTING.keys())
def test_with_log_record_values_the_message_is_there(group: NodeGroup) -> None:
    reason = reason_of(group, record(), values=True)
    assert TEXT in reason
    assert HINT not in reason
    assert TEXT in letter_of(group, record(), values=True)["__streams.errors.message"]


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("name", SILENT.keys())
def test_words_of_the_engine_are_the_same_with_and_without_values(name: str, values: bool) -> None:
    batch = {
        "sum": record(value=CARD + b"x"),
        "count": record(key=None),
        "expression": record(value=json.dumps({"a": f"{TEXT}x"}).encode()),
    }.get(name, record())
    reason = reason_of(SILENT[name], batch, values=values)
    assert TEXT not in reason
    assert HINT not in reason
    assert TEXT not in str(letter_of(SILENT[name], batch, values=values))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ('RecordRejectedError(f"card {record.value}")', f"card {TEXT}"),
        ('ValueError("the card is refused")', "ValueError: the card is refused ("),
        ('OrderError("refused")', "OrderError: refused ("),
        ("OrderError()", "OrderError ("),
        ("KeyError('card')", "KeyError: 'card' ("),
    ],
)
def test_words_that_the_code_chose_are_always_there(error: str, words: str) -> None:
    names: dict[str, Any] = {**globals(), "RecordRejectedError": RecordRejectedError}
    source = f"def process(context, record): raise {error}"
    exec(compile(source, "/code/shop.py", "exec"), names)
    for values in (False, True):
        reason = reason_of(of(names["process"]), record(), values=values)
        assert reason.startswith(f"record in[0]@0: {words}")
        assert HINT not in reason


def missing(record: Any) -> None:
    PRICES_BY_CARD["price"]


def undefined(record: Any) -> None:
    print(prices)  # type: ignore[name-defined]  # noqa: F821


def misspelt(record: Any) -> None:
    record.valeu  # noqa: B018


def added(record: Any) -> None:
    record.value + 1


def called(record: Any) -> None:
    missing()  # type: ignore[call-arg]


def imported(record: Any) -> None:
    import prices_zz  # type: ignore[import-not-found]  # noqa: F401


def divided(record: Any) -> None:
    1 / (len(record.value) - 16)


def no_file(record: Any) -> None:
    Path("/nowhere/x").read_bytes()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (missing, "KeyError: 'price'"),
        (undefined, "NameError: name 'prices' is not defined"),
        (misspelt, "AttributeError: 'Record' object has no attribute 'valeu'"),
        (added, 'TypeError: can only concatenate str (not "int") to str'),
        (called, "TypeError: missing() missing 1 required positional argument: 'record'"),
        (imported, "ModuleNotFoundError: No module named 'prices_zz'"),
        (divided, "ZeroDivisionError: division by zero"),
        (no_file, "FileNotFoundError: [Errno 2] No such file or directory"),
    ],
)
def test_messages_about_code_are_always_there(code: Callable[[Any], None], words: str) -> None:
    def process(context: ProcessorContext, record: Record) -> None:
        code(record)

    reason = reason_of(of(process), record(), values=False)
    assert reason.startswith(f"record in[0]@0: {words} (")


def test_the_message_of_a_recursion_in_the_code_of_python_is_always_there() -> None:
    def nested(context: ProcessorContext, record: Record) -> None:
        json.loads("[" * 200_000)

    said = reason_of(of(nested), record(), values=False)
    too_deep = r"(maximum recursion depth exceeded|Stack overflow \(used \d+ kB\))"
    assert re.match(rf"record in\[0\]@0: RecursionError: {too_deep} while decoding a JSON ", said)


def test_a_hidden_message_leaves_class_place_and_how_to_see_it() -> None:
    line = as_number.__code__.co_firstlineno + 1
    place = f"tests/unit/streams/engine/test_record_values.py:{line} in as_number"
    assert reason_of(of(as_number), record(), values=False) == (
        f'record in[0]@0: ValueError ({place}, processor "Enrich"){HINT}'
    )


@pytest.mark.parametrize(("values", "last"), [(False, "OrderError"), (True, f"no {TEXT}")])
def test_the_stack_trace_has_the_message_only_with_log_record_values(
    values: bool, last: str
) -> None:
    trace = letter_of(of(chained), record(), values=values)["__streams.errors.stacktrace"]
    assert trace.endswith(last)
    assert (TEXT in trace) is values


def test_init_and_punctuations_may_quote_state_and_are_treated_alike() -> None:
    class Flush(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            context.schedule(1, PunctuationType.WALL_CLOCK_TIME, self.flush)

        def process(self, record: Record) -> None:
            self.last = record.value

        def flush(self, time: int) -> None:
            raise ValueError(self.last)

    task = Tasks(of(supplier=Flush), FAIL, OutputTopics())
    task.run(record())
    task.clock.now_ms += 10
    with pytest.raises(ProcessingFailedError) as raised:
        task.run()
    assert TEXT not in str(raised.value)
    assert str(raised.value).startswith("a punctuation: ValueError (")


def test_errors_keep_their_whole_message_for_code() -> None:
    """The test driver and callers that catch an error see all of it."""
    task = Tasks(of(sink={"partitioner": lambda *_: {int(CARD)}}), FAIL, OutputTopics())
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(record())
    assert isinstance(raised.value.error, PartitionError)
    assert TEXT in str(raised.value.error)


class NoTopics(OutputTopics):
    """What is known of topics that do not exist."""

    def limits(self, topic: str) -> TopicLimits:
        raise EngineError(f"no topic {topic}")


@pytest.mark.parametrize(
    ("topic", "named"),
    [(lambda record: "elsewhere", '"elsewhere"'), (lambda record: record.value, "the name")],
)
def test_the_name_of_a_missing_topic_is_shown_if_it_is_in_the_code(topic: Any, named: str) -> None:
    nodes = Nodes(of(topic=topic), NoTopics())
    with pytest.raises(EngineError) as raised:
        nodes.process(record())
    assert raised.value.shown.startswith(f'sink "prices" got {named}')
    assert TEXT not in raised.value.shown

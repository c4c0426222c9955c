"""Errors of user code: the line, the node, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    Batch,
    ProcessorContext,
    Record,
    RecordRejectedError,
    StreamsError,
    TopologyBuilder,
    serdes,
)
from kafka_pipeline.common.code.error_words import HOW_TO_SHOW
from kafka_pipeline.common.code.user_frames import Trace
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.builtin.sum import SumProcessor
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.engine.user_errors import reason
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Nodes, OutputTopics, Tasks, batch, calling, calling_whole
from tests.user_code import shop

FAIL = GroupSettings()
SKIP = GroupSettings(on_error=OnError.SKIP)
DEAD_LETTER = GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
FILE = "tests/user_code/shop.py"


def place(mark: str, function: str, node: str = 'processor "Enrich"') -> str:
    return f"({FILE}:{shop.line_of(mark)} in {function}, {node})"


def hidden(mark: str, function: str, node: str = 'processor "Enrich"') -> str:
    """Return the place of an error whose message is left out."""
    return f"{place(mark, function, node)}; {HOW_TO_SHOW}"


def group(
    *suppliers: Callable[[], Any],
    source: dict[str, Any] | None = None,
    sink: dict[str, Any] | None = None,
    topic: Any = "out",
) -> NodeGroup:
    """Return processors one after the other; the last one is called Enrich."""
    builder = TopologyBuilder()
    builder.add_source("orders", "in", **{"value_serde": serdes.string, **(source or {})})
    parent = "orders"
    names = [*(f"Before{number}" for number in range(len(suppliers) - 1)), "Enrich"]
    for name, supplier in zip(names, suppliers, strict=True):
        builder.add_processor(name, supplier, parent)
        parent = name
    builder.add_sink("prices", topic, parent, **{"value_serde": serdes.json, **(sink or {})})
    return builder.build().groups[0]


def failure(nodes: NodeGroup, *records: RecordBatch, log_record_values: bool = False) -> str:
    """Return the reason for which a task of these nodes stops."""
    task = Tasks(nodes, FAIL, OutputTopics(), log_record_values=log_record_values)
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(*(records or (batch([b"x"]),)))
    return str(raised.value)


def letter(nodes: NodeGroup, output_topics: OutputTopics | None = None) -> dict[str, str]:
    """Return the headers of the dead letter that a record leads to."""
    task = Tasks(nodes, DEAD_LETTER, output_topics)
    task.task.add(batch([b"secret"]))
    task.task.step(0, task.partitions)
    ((output,), _) = task.task.take()
    assert isinstance(output, tuple)
    return {name: (value or b"").decode() for name, value in output[5] or []}


# The place


@pytest.mark.parametrize(
    ("processor", "words", "mark", "function"),
    [
        (shop.Translating, "ValueError: no price", "translating", "process"),
        (shop.Endless, "RecursionError: .*", "endless", "_down"),
        (shop.Decorated, "PermissionError: not today", "wrapper", "wrapper"),
    ],
)
def test_reason_names_the_innermost_line_of_user_code_and_the_processor(
    processor: Callable[[], Any], words: str, mark: str, function: str
) -> None:
    said = re.escape(place(mark, function))
    assert re.fullmatch(rf"record in\[0\]@0: {words} {said}", failure(group(processor)))


@pytest.mark.parametrize(
    ("processor", "words", "mark", "function"),
    [
        (shop.Enrich, "KeyError", "price", "price"),
        (shop.Parse, "JSONDecodeError", "parse", "process"),
    ],
)
def test_reason_has_the_place_without_the_message_too(
    processor: Callable[[], Any], words: str, mark: str, function: str
) -> None:
    assert failure(group(processor)) == f"record in[0]@0: {words} {hidden(mark, function)}"


def test_the_processor_that_raised_is_named_and_not_the_one_that_forwarded_to_it() -> None:
    said = failure(group(shop.Pass, shop.Pass, shop.Enrich))
    assert said == f"record in[0]@0: KeyError {hidden('price', 'price')}"


def test_a_batch_processor_is_named_with_the_line_that_rejects_the_record() -> None:
    def look_up(context: ProcessorContext, given: Batch) -> None:
        for record in given.records():
            shop.price(record)

    said = failure(group(calling_whole(look_up)), batch([b"x", b"y"]))
    assert said == f"record in[0]@0: KeyError {hidden('price', 'price')}"


@pytest.mark.parametrize("ordered", [True, "key"])
def test_a_coroutine_is_named_with_its_line(ordered: Any) -> None:
    class Ordered(shop.EnrichAsync):
        pass

    Ordered.ordered = ordered
    said = failure(group(Ordered), batch([b"x"], keys=[b"k"]))
    assert said == f"record in[0]@0: KeyError {hidden('price', 'price')}"


def test_a_coroutine_that_fails_on_bytes_is_told_that_a_serde_is_missing() -> None:
    class Add(AsyncProcessor):
        async def process(self, record: Record) -> Record:
            return record.with_value(record.value + "!")

    said = failure(group(Add, source={"value_serde": serdes.bytes, "key_serde": serdes.string}))
    assert said.endswith("; the value is " + BYTES % ("value: …", "value_serde"))


def test_what_a_coroutine_returned_is_named_with_its_sink_where_that_cannot_write_it() -> None:
    said = failure(group(shop.PassAsync, sink={"value_serde": serdes.int64}))
    assert 'This is the value for sink "prices"' in said


@pytest.mark.parametrize(
    ("nodes", "words", "mark", "function", "node"),
    [
        (
            group(shop.Pass, source={"value_serde": Serde("price", shop.write, shop.read)}),
            "KeyError",
            "read",
            "read",
            'source "orders"',
        ),
        (
            group(shop.Pass, sink={"value_serde": Serde("price", shop.write, shop.read)}),
            "KeyError",
            "write",
            "write",
            'sink "prices"',
        ),
        (
            group(shop.Pass, source={"timestamp_extractor": shop.time_of}),
            "the timestamp extractor failed: KeyError",
            "extractor",
            "time_of",
            'source "orders"',
        ),
        (
            group(shop.Pass, topic=shop.choose_topic),
            "KeyError: 'topic'",
            "chooser",
            "choose_topic",
            'sink "prices"',
        ),
        (
            group(shop.Pass, sink={"partitioner": shop.choose_partitions}),
            "KeyError: 'partition'",
            "partitioner",
            "choose_partitions",
            'sink "prices"',
        ),
    ],
    ids=["serde of a source", "serde of a sink", "extractor", "chooser", "partitioner"],
)
def test_functions_of_sources_and_sinks_are_named_with_their_node(
    nodes: NodeGroup, words: str, mark: str, function: str, node: str
) -> None:
    at = place if ": '" in words else hidden
    assert failure(nodes) == f"record in[0]@0: {words} {at(mark, function, node)}"


@pytest.mark.parametrize(
    ("processor", "words", "mark", "function"),
    [
        (shop.Tick, "no flush", "flush", "flush"),
        (shop.TickByFunction, "no tick", "tick", "tick"),
    ],
)
def test_punctuations_have_a_place_too(
    processor: Callable[[], Any], words: str, mark: str, function: str
) -> None:
    task = Tasks(group(processor), FAIL)
    task.clock.now_ms = 10
    with pytest.raises(ProcessingFailedError) as raised:
        task.run()
    said = place(mark, function)
    assert str(raised.value) == f"a punctuation: RuntimeError: {words} {said}"


@pytest.mark.parametrize(
    ("supplier", "words", "mark", "function"),
    [
        (shop.Begin, "FileNotFoundError: model.bin", "init", "init"),
        (
            shop.Storeless,
            'processor "Enrich" has no store "Prices": connect it (add_state_store, or stores: in '
            "pipeline.yaml)",
            "store",
            "init",
        ),
        (
            shop.supply,
            'the supplier of processor "Enrich" failed: ConnectionError: no registry',
            "supplier",
            "supply",
        ),
    ],
)
def test_init_and_suppliers_have_a_place_too(
    supplier: Callable[[], Any], words: str, mark: str, function: str
) -> None:
    with pytest.raises((FileNotFoundError, StreamsError)) as raised:
        Nodes(group(supplier))
    assert reason(raised.value) == f"{words} {place(mark, function)}"


def test_close_has_a_place_too() -> None:
    nodes = Nodes(group(shop.End))
    with pytest.raises(RuntimeError) as raised:
        nodes.runtime.close()
    assert reason(raised.value) == f"RuntimeError: still busy {place('close', 'close')}"


def test_a_record_that_is_rejected_on_purpose_has_the_reason_of_the_user_alone() -> None:
    def reject(context: ProcessorContext, record: Record) -> None:
        raise RecordRejectedError("the price is negative")

    assert failure(group(calling(reject))) == "record in[0]@0: the price is negative"


def test_errors_without_user_code_are_said_as_they_are() -> None:
    said = failure(group(shop.Pass, source={"value_serde": serdes.int32}))
    assert said == "record in[0]@0: the serde int32 cannot read these bytes: it takes 4 of them"


def test_a_long_reason_keeps_its_place() -> None:
    def fail(context: ProcessorContext, record: Record) -> None:
        raise ValueError("x" * 5_000)

    said = failure(group(calling(fail)), log_record_values=True)
    assert len(said) < 800
    assert said.endswith('in fail, processor "Enrich")')


# Code that is installed


def installed(folder: Path, package: str, source: str) -> dict[str, Any]:
    """Return what a module defines that lies in site-packages."""
    file = folder / "site-packages" / package / "work.py"
    names: dict[str, Any] = {"__name__": f"{package}.work"}
    exec(compile(source, str(file), "exec"), names)
    return names


WORK = """
from kafka_pipeline import Processor

class Work(Processor):
    def process(self, record):
        helper(record)
"""


def test_a_library_that_user_code_calls_is_not_the_place(tmp_path: Path) -> None:
    library = installed(tmp_path, "requests", "def get(record): raise OSError('away')")

    def ask(context: ProcessorContext, record: Record) -> None:
        library["get"](record)

    assert "tests/unit/streams/engine/test_user_errors.py" in failure(group(calling(ask)))


def test_user_code_that_is_installed_as_a_package_is_the_place(tmp_path: Path) -> None:
    library = installed(tmp_path, "requests", "def get(record): raise OSError('away')")
    code = installed(tmp_path, "shop", WORK)
    code["helper"] = library["get"]
    assert failure(group(code["Work"])) == (
        'record in[0]@0: OSError: away (shop/work.py:6 in process, processor "Enrich")'
    )


# Dead letters


def test_a_dead_letter_has_the_processor_and_the_users_part_of_the_stack_trace() -> None:
    headers = letter(group(shop.Pass, shop.Enrich))
    assert headers["__streams.errors.exception"] == "builtins.KeyError"
    assert headers["__streams.errors.processor"] == "Enrich"
    assert headers["__streams.errors.message"] == f"KeyError {hidden('price', 'price')}"
    assert headers["__streams.errors.stacktrace"].splitlines() == [
        "Traceback of user code (most recent call last):",
        f'  File "{FILE}", line {shop.line_of("pass")}, in process',
        "    self.context.forward(record)  # raises: pass",
        f'  File "{FILE}", line {shop.line_of("enrich")}, in process',
        "    self.context.forward(record.with_value(price(record)))  # raises: enrich",
        f'  File "{FILE}", line {shop.line_of("price")}, in price',
        "    return PRICES[record.value]  # raises: price",
        "KeyError",
    ]


@pytest.mark.parametrize(
    ("nodes", "node"),
    [
        (group(SumProcessor, source={"value_serde": serdes.bytes}), "Enrich"),
        (group(shop.Pass, source={"value_serde": serdes.int32}), "orders"),
    ],
    ids=["built-in", "source"],
)
def test_a_dead_letter_without_user_code_has_no_stack_trace(nodes: NodeGroup, node: str) -> None:
    headers = letter(nodes)
    assert headers["__streams.errors.processor"] == node
    assert "__streams.errors.stacktrace" not in headers


def test_a_dead_letter_of_an_extractor_names_the_source_and_the_users_line() -> None:
    headers = letter(group(shop.Pass, source={"timestamp_extractor": shop.time_of}))
    assert headers["__streams.errors.processor"] == "orders"
    assert f"line {shop.line_of('extractor')}, in time_of" in headers["__streams.errors.stacktrace"]


def test_a_stack_trace_never_makes_a_dead_letter_too_large() -> None:
    whole = letter(group(shop.Enrich))
    trace = whole.pop("__streams.errors.stacktrace")
    size = sum(len(name) + len(value) for name, value in whole.items())
    assert len(trace) > 100
    assert letter(group(shop.Enrich), OutputTopics(sizes={"dead": size + 150})) == whole


def test_recursion_has_each_line_once() -> None:
    trace = letter(group(shop.Endless))["__streams.errors.stacktrace"]
    assert trace.count("in _down") == 1


# Callers that want to know


@pytest.mark.parametrize(
    "settings", [FAIL, SKIP, DEAD_LETTER], ids=lambda each: each.on_error.value
)
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (group(shop.Enrich), ["price"]),
        (group(shop.Pass, source={"timestamp_extractor": shop.time_of}), ["time_of"]),
        (group(SumProcessor, source={"value_serde": serdes.bytes}), []),
    ],
    ids=["processor", "extractor", "rejected on purpose"],
)
def test_errors_are_handed_on_whatever_on_error_says(
    settings: GroupSettings, nodes: NodeGroup, expected: list[str]
) -> None:
    seen: list[Exception] = []
    task = Tasks(nodes, settings, on_user_error=seen.append)
    if settings is FAIL:
        with pytest.raises(ProcessingFailedError):
            task.run(batch([b"x"]))
    else:
        task.run(batch([b"x"]))
    assert [Trace.of(error).user_frames[-1].function for error in seen] == expected


def test_an_error_of_a_punctuation_is_handed_on() -> None:
    seen: list[Exception] = []
    task = Tasks(group(shop.Tick), SKIP, on_user_error=seen.append)
    task.clock.now_ms = 10
    with pytest.raises(ProcessingFailedError):
        task.run()
    assert [str(error) for error in seen] == ["no flush"]


# Serdes that are missing


def add(context: ProcessorContext, record: Record) -> None:
    context.forward(record.with_value(record.value + "!"))


def get(context: ProcessorContext, record: Record) -> None:
    record.value.get("price")


def index(context: ProcessorContext, record: Record) -> None:
    record.value["price"]


BYTES = "bytes: `serdes` gives none; write serdes: {%s} in pipeline.yaml, or %s in add_source"


@pytest.mark.parametrize("process", [add, get, index])
@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            {"key_serde": serdes.string, "value_serde": serdes.bytes},
            "the value is " + BYTES % ("value: …", "value_serde"),
        ),
        (
            {"value_serde": serdes.bytes},
            "key and value are " + BYTES % ("key: …, value: …", "key_serde and value_serde"),
        ),
    ],
)
def test_code_that_fails_on_bytes_is_told_that_a_serde_is_missing(
    process: Callable[[ProcessorContext, Record], None], source: dict[str, Any], said: str
) -> None:
    assert failure(group(calling(process), source=source)).endswith(f"; {said}")


def test_a_key_without_a_serde_is_named() -> None:
    def join(context: ProcessorContext, record: Record) -> None:
        "-".join([record.key, record.value])

    said = failure(group(calling(join)), batch([b"x"], keys=[b"k"]))
    assert said.endswith("; the key is " + BYTES % ("key: …", "key_serde"))


@pytest.mark.parametrize(
    ("process", "source"),
    [
        (add, {"value_serde": serdes.json, "key_serde": serdes.json}),
        (lambda context, record: record.key + 1, {"value_serde": serdes.bytes}),
    ],
    ids=["serdes are given", "it is not about bytes"],
)
def test_other_errors_come_without_that_advice(
    process: Callable[[ProcessorContext, Record], None], source: dict[str, Any]
) -> None:
    said = failure(group(calling(process), source=source), batch([b"1"]))
    assert "TypeError" in said
    assert "serde" not in said


def test_the_test_driver_adds_the_advice_as_a_note() -> None:
    builder = TopologyBuilder()
    builder.add_source("orders", "in")
    builder.add_processor("Enrich", calling(add), "orders")
    with TopologyTestDriver(builder) as driver:
        orders = driver.create_input_topic("in")
        with pytest.raises(TypeError, match="can't concat str to bytes") as raised:
            orders.pipe_input(b"k", b"v")
    assert raised.value.__notes__ == [
        "key and value are " + BYTES % ("key: …, value: …", "key_serde and value_serde")
    ]


@pytest.mark.parametrize("kind", [calling, calling_whole])
@pytest.mark.parametrize("column", ["key", "value"])
def test_a_column_that_a_sink_cannot_write_is_named_with_its_serde(
    kind: Callable[[Any], Any], column: str
) -> None:
    def send(context: ProcessorContext, given: Any) -> None:
        key, value = ({"a": 1}, b"v") if column == "key" else (b"k", {"a": 1})
        record = Record(key, value, 0)
        context.forward(Batch.of(record) if isinstance(given, Batch) else record)

    said = failure(group(kind(send), sink={"value_serde": serdes.bytes}))
    assert said.startswith(
        "record in[0]@0: the serde bytes cannot write this: it is a dict. This is the "
        f'{column} for sink "prices": give it another serde, by `out_{column}` under serdes: in '
        f"pipeline.yaml, or {column}_serde in the call that adds the sink "
        "(tests/unit/streams/engine/test_user_errors.py:"
    )
    assert said.endswith(' in send, processor "Enrich")')

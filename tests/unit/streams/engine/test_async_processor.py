"""An `AsyncProcessor`: concurrent calls, results in order, and errors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import (
    AsyncProcessor,
    AsyncProcessorContext,
    Processor,
    Record,
    StreamsError,
    TopologyBuilder,
    serdes,
    stores,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Tasks, batch
from tests.waiting import wait_until

FAIL = GroupSettings()
SKIP = GroupSettings(on_error=OnError.SKIP)
DEAD_LETTER = GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
TIMEOUT_S = 20


class Gate(AsyncProcessor):
    """Calls that return when the test lets them; `record.value` names them."""

    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            setattr(self, name, value)
        self.gates: dict[bytes, asyncio.Event] = {}
        self.begun: list[bytes] = []
        self.loop: asyncio.AbstractEventLoop | None = None

    async def process(self, record: Record) -> Any:
        self.loop = asyncio.get_running_loop()
        self.begun.append(record.value)
        gate = self.gates.setdefault(record.value, asyncio.Event())
        await gate.wait()
        if record.value.startswith(b"bad"):
            raise ValueError("no good")
        return record

    def open(self, *values: bytes) -> None:
        """Let calls return, and wait until they have."""
        done = threading.Event()

        def set_all() -> None:
            for value in values:
                self.gates.setdefault(value, asyncio.Event()).set()

        async def settle() -> None:
            set_all()
            for _ in range(5):
                await asyncio.sleep(0)
            done.set()

        wait_until(lambda: self.loop is not None)
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(settle(), self.loop)
        assert done.wait(TIMEOUT_S)


def group(supplier: Callable[[], Any]) -> NodeGroup:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("p", supplier, "source")
    builder.add_sink("sink", "out", "p")
    return builder.build().groups[0]


def turn(task: Tasks) -> list[bytes | None]:
    """Have a turn of limited time; return what was put out."""
    task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S)
    return [value for _, _, value, _ in task.taken()]


def test_results_come_in_the_order_of_the_input_and_positions_with_them() -> None:
    gate = Gate()
    task = Tasks(group(lambda: gate), FAIL)
    task.task.add(batch([b"a", b"b", b"c"], offset=5))
    assert turn(task) == []
    assert task.task.has_calls
    assert not task.task.has_uncommitted
    gate.open(b"b", b"c")
    assert turn(task) == []
    assert task.task.position(("in", 0)) == 5
    gate.open(b"a")
    task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S)
    assert task.task.has_uncommitted
    assert [value for _, _, value, _ in task.taken()] == [b"a", b"b", b"c"]
    assert task.task.position(("in", 0)) == 8
    assert not task.task.has_calls
    task.task.close()


def test_the_time_to_commit_is_that_of_the_records_before_the_first_call_in_flight() -> None:
    gate = Gate()
    task = Tasks(group(lambda: gate), SKIP)
    task.task.add(batch([b"a", b"bad", b"c"], timestamps=[3, 9, 5]))
    turn(task)
    assert task.task.partition_time(("in", 0)) == -1
    gate.open(b"a", b"c")
    assert turn(task) == [b"a"]
    assert (task.task.position(("in", 0)), task.task.partition_time(("in", 0))) == (1, 3)
    gate.open(b"bad")
    assert turn(task) == [b"c"]
    assert (task.task.position(("in", 0)), task.task.partition_time(("in", 0))) == (3, 9)
    task.task.close()


def test_the_time_of_a_call_that_stops_the_task_is_not_committed() -> None:
    gate = Gate()
    task = Tasks(group(lambda: gate), FAIL)
    task.task.add(batch([b"a", b"bad"], timestamps=[3, 9]))
    turn(task)
    gate.open(b"a", b"bad")
    with pytest.raises(ProcessingFailedError):
        turn(task)
    assert (task.task.position(("in", 0)), task.task.partition_time(("in", 0))) == (1, 3)
    task.task.close()


def test_only_so_many_calls_go_on_at_a_time() -> None:
    gate = Gate(max_in_flight=2)
    task = Tasks(group(lambda: gate), FAIL)
    task.task.add(batch([b"a", b"b", b"c", b"d"]))
    assert not task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S).has_more
    wait_until(lambda: gate.begun == [b"a", b"b"])
    assert task.task.waiting(("in", 0)) == 2
    gate.open(b"a")
    assert turn(task) == [b"a"]
    wait_until(lambda: gate.begun == [b"a", b"b", b"c"])
    gate.open(b"b", b"c", b"d")
    while task.task.has_calls:
        turn(task)
    assert task.task.position(("in", 0)) == 4
    task.task.close()


def test_with_order_by_key_a_slow_key_holds_up_no_other_and_has_one_call_at_a_time() -> None:
    gate = Gate(ordered="key")
    task = Tasks(group(lambda: gate), FAIL)
    task.task.add(batch([b"a1", b"a2", b"b1", b"-1"], keys=[b"a", b"a", b"b", None]))
    turn(task)
    wait_until(lambda: gate.begun == [b"a1", b"b1", b"-1"])
    gate.open(b"b1", b"-1")
    assert turn(task) == [b"b1", b"-1"]
    assert not task.task.has_uncommitted, "what is in flight comes before what was put out"
    gate.open(b"a1")
    assert turn(task) == [b"a1"]
    wait_until(lambda: gate.begun[-1] == b"a2")
    gate.open(b"a2")
    task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S)
    assert task.task.has_uncommitted
    assert task.task.position(("in", 0)) == 4
    task.task.close()


def test_with_order_by_key_no_record_is_taken_in_before_what_was_put_out_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the task could never commit as long as records come."""
    gate = Gate(ordered="key")
    task = Tasks(group(lambda: gate), FAIL)
    now_s = [1000.0]
    monkeypatch.setattr(
        "kafka_pipeline.streams.engine.async_calls.time.monotonic", lambda: now_s[0]
    )
    task.task.add(batch([b"a"], keys=[b"a"]))
    turn(task)
    now_s[0] += 0.2
    task.task.add(batch([b"b"], keys=[b"b"], offset=1))
    turn(task)
    assert task.task.waiting(("in", 0)) == 1
    gate.open(b"a")
    step = task.task.step(0, task.partitions, now_s[0] + TIMEOUT_S)
    assert (step.has_more, step.wants_commit) == (True, True)
    assert task.task.has_uncommitted
    assert task.task.waiting(("in", 0)) == 1
    assert task.taken()[0][1:3] == (b"a", b"a")
    turn(task)
    assert task.task.waiting(("in", 0)) == 0
    assert not task.task.has_uncommitted
    gate.open(b"b")
    task.task.close()


def test_with_order_by_key_a_commit_that_is_asked_for_comes_before_more_calls() -> None:
    class CommitEach(Processor):
        def process(self, record: Record) -> None:
            self.context.commit()

    gate = Gate(ordered="key", max_in_flight=1)
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("p", lambda: gate, "source")
    builder.add_processor("commit", CommitEach, "p")
    task = Tasks(builder.build().groups[0], FAIL)
    task.task.add(batch([b"a", b"b"], keys=[b"a", b"b"]))
    turn(task)
    gate.open(b"a")
    step = task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S)
    assert (step.has_more, step.wants_commit) == (True, True)
    assert task.task.has_uncommitted
    assert task.task.position(("in", 0)) == 1
    task.task.close()


@pytest.mark.parametrize("ordered", [True, "key"])
def test_a_call_that_raises_is_skipped(ordered: Any) -> None:
    gate = Gate(ordered=ordered)
    task = Tasks(group(lambda: gate), SKIP)
    task.task.add(batch([b"a", b"bad", b"c"]))
    turn(task)
    gate.open(b"a", b"bad", b"c")
    task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S)
    outputs, figures = task.task.take()
    assert [value for _, _, value, *_ in outputs] == [b"a", b"c"]  # type: ignore[misc]
    assert (figures.records_in, figures.skipped) == (3, 1)
    task.task.close()


def test_a_call_that_raises_makes_a_dead_letter() -> None:
    gate = Gate()
    task = Tasks(group(lambda: gate), DEAD_LETTER)
    task.task.add(batch([b"bad"]))
    turn(task)
    gate.open(b"bad")
    task.task.step(0, task.partitions, time.monotonic() + TIMEOUT_S)
    assert [(topic, value) for topic, _, value, _ in task.taken()] == [("dead", b"bad")]
    task.task.close()


def test_a_call_that_raises_fails_the_task_in_front_of_its_record() -> None:
    gate = Gate()
    task = Tasks(group(lambda: gate), FAIL)
    task.task.add(batch([b"a", b"bad", b"c"], offset=10))
    turn(task)
    gate.open(b"a", b"bad", b"c")
    with pytest.raises(ProcessingFailedError, match=r"in\[0\]@11: ValueError: no good"):
        turn(task)
    assert [value for _, _, value, _ in task.taken()] == [b"a"]
    assert task.task.position(("in", 0)) == 11
    task.task.close()


def test_a_call_that_takes_too_long_is_rejected() -> None:
    task = Tasks(group(lambda: Gate(timeout_ms=1)), FAIL)
    task.task.add(batch([b"a"]))
    with pytest.raises(ProcessingFailedError, match=r'"p" took longer than its timeout_ms \(1\)'):
        task.task.step(0, task.partitions)
    task.task.close()


def test_records_that_cannot_be_read_keep_their_place() -> None:
    class Number(AsyncProcessor):
        async def process(self, record: Record) -> Record:
            return record.with_value(b"%d" % (record.value + 1))

    builder = TopologyBuilder()
    builder.add_source("source", "in", value_serde=serdes.integer)
    builder.add_processor("p", Number, "source")
    builder.add_sink("sink", "out", "p")
    task = Tasks(builder.build().groups[0], DEAD_LETTER)
    task.task.add(batch([b"1", b"x", b"3"]))
    task.task.step(0, task.partitions)
    found = [(topic, value) for topic, _, value, _ in task.taken()]
    assert found == [("out", b"2"), ("dead", b"x"), ("out", b"4")]
    task.task.close()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda record: None, []),
        (lambda record: record, [b"1"]),
        (lambda record: [record, record.with_value(b"2")], [b"1", b"2"]),
    ],
    ids=["nothing", "a record", "several"],
)
def test_what_a_call_returns_is_forwarded(returned: Any, expected: list[bytes]) -> None:
    class Returning(AsyncProcessor):
        async def process(self, record: Record) -> Any:
            return returned(record)

    with TopologyTestDriver(of(Returning)) as driver:
        driver.create_input_topic("in").pipe_input(None, b"1", 1)
        output = driver.create_output_topic("out")
        assert [record.value for record in output.read_records()] == expected


def test_a_list_that_was_returned_may_be_used_for_the_next_call() -> None:
    class Reusing(AsyncProcessor):
        def __init__(self) -> None:
            self.results: list[Record] = []

        async def process(self, record: Record) -> list[Record]:
            self.results.clear()
            self.results.append(record)
            return self.results

    task = Tasks(group(Reusing), FAIL)
    found = [value for _, _, value, _ in task.run(batch([b"1", b"2", b"3"]))]
    assert found == [b"1", b"2", b"3"]
    task.task.close()


def of(supplier: Callable[[], Any]) -> Any:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("p", supplier, "source")
    builder.add_sink("sink", "out", "p")
    return builder.build()


def test_what_is_no_record_is_refused() -> None:
    class Wrong(AsyncProcessor):
        async def process(self, record: Record) -> Any:
            return b"bytes"

    task = Tasks(group(Wrong), FAIL)
    task.task.add(batch([b"a"]))
    with pytest.raises(ProcessingFailedError, match='"p" returned a bytes: return a Record'):
        task.task.step(0, task.partitions)
    task.task.close()


def test_init_and_close_may_be_coroutines() -> None:
    said: list[str] = []

    class Session(AsyncProcessor):
        async def init(self, context: AsyncProcessorContext) -> None:
            said.append(f"init {context.task_id}")

        async def process(self, record: Record) -> Record:
            return record

        async def close(self) -> None:
            said.append("close")

    task = Tasks(group(Session), FAIL)
    task.task.close()
    assert said == ["init source_0", "close"]


def test_the_call_that_goes_on_longest_is_told() -> None:
    gate = Gate()
    task = Tasks(group(lambda: gate), FAIL)
    assert task.task.call is None
    task.task.add(batch([b"a", b"b"], offset=7))
    turn(task)
    call = task.task.call
    assert call is not None
    assert call.place == "`process` of in[0]@7"
    gate.open(b"a")
    turn(task)
    call = task.task.call
    assert call is not None
    assert call.place == "`process` of in[0]@8"
    task.task.close()
    assert task.task.call is None


class Sync(AsyncProcessor):
    def process(self, record: Record) -> Any:
        return record


@pytest.mark.parametrize(
    ("supplier", "message"),
    [
        (Sync, "process of Sync is not a coroutine"),
        (lambda: Gate(max_in_flight=0), "max_in_flight of Gate is 0"),
        (lambda: Gate(timeout_ms=1.5), 'processor "p" has timeout_ms=1.5'),
        (lambda: Gate(ordered=False), "ordered of Gate is False"),
    ],
)
def test_settings_that_cannot_be_are_refused(supplier: Any, message: str) -> None:
    with pytest.raises(StreamsError, match=message):
        Tasks(group(supplier), FAIL)


def test_it_has_no_stores() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("p", Gate, "source")
    builder.add_state_store(stores.key_value("seen", serdes.bytes, serdes.bytes), ["p"])
    with pytest.raises(StreamsError, match='the AsyncProcessor "p" cannot have stores'):
        Tasks(builder.build().groups[0], FAIL)


def test_it_is_fed_by_sources_that_feed_nothing_else() -> None:
    class Pass(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record)

    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("first", Pass, "source")
    builder.add_processor("p", Gate, "first")
    with pytest.raises(StreamsError, match='"first" feeds an AsyncProcessor, which only sources'):
        Tasks(builder.build().groups[0], FAIL)
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("other", Pass, "source")
    builder.add_processor("p", Gate, "source")
    with pytest.raises(StreamsError, match='source "source" feeds an AsyncProcessor and others'):
        Tasks(builder.build().groups[0], FAIL)

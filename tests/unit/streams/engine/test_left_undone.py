"""Results that nobody takes, and code that nobody runs: refused instead of lost."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_pipeline import (
    Batch,
    BatchProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsError,
    TopologyBuilder,
    TopologyError,
    serdes,
    stores,
)
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.testing import TopologyTestDriver
from tests.unit.streams.nodes import Each, Nodes, Tasks, Whole, batch, chain, starting

FILE = "tests/unit/streams/engine/test_left_undone.py"


async def later(record: object) -> None:
    """Do nothing."""


def generated(record: object) -> Iterator[object]:
    yield record


async def generated_later(record: object) -> AsyncIterator[object]:
    yield record


RESULTS: dict[str, Callable[[Any], object]] = {
    "a coroutine (async def), which nobody runs: only an AsyncProcessor and map_values": later,
    "a generator (yield), which nobody runs": generated,
    "an asynchronous generator, which nobody runs": generated_later,
    "a Record, which is lost: forward it instead": lambda record: record,
    "a list, which is lost: forward it instead": lambda record: [record],
    "a tuple, which is lost: forward it instead": lambda record: (record,),
}


def returning(result: Callable[[Any], object]) -> type[Processor]:
    """Return a processor whose `process` returns something."""

    class Returning(Processor):
        def process(self, record: Record) -> Any:
            self.context.forward(record)
            return result(record)

    return Returning


def returning_whole(result: Callable[[Any], object]) -> type[BatchProcessor]:
    """Return a processor of batches whose `process` returns something."""

    class Returning(BatchProcessor):
        def process(self, batch: Batch) -> Any:
            self.context.forward(batch)
            return result(batch)

    return Returning


@pytest.mark.parametrize("words", RESULTS)
@pytest.mark.parametrize("ahead", [[], [Each], [Whole]], ids=["first", "child", "of batches"])
def test_a_record_whose_result_is_returned_is_rejected(ahead: list[Any], words: str) -> None:
    nodes = Nodes(chain(*ahead, returning(RESULTS[words])))
    (rejected,) = nodes.process(batch([b"a"]))
    assert f"Returning.process returned {words}" in str(rejected.error)
    assert f"({FILE}:" in str(rejected.error)
    assert nodes.sent == []


def test_a_batch_that_is_returned_is_refused() -> None:
    nodes = Nodes(chain(returning_whole(lambda batch: batch)))
    rejected = nodes.process(batch([b"a", b"b"]))
    assert ["a Batch, which is lost" in str(each.error) for each in rejected] == [True, True]


@pytest.mark.parametrize("result", [None, 7, [], [7], "text"])
def test_other_results_are_ignored(result: object) -> None:
    for supplier in (returning(lambda _: result), returning_whole(lambda _: result)):
        nodes = Nodes(chain(supplier))
        assert nodes.process(batch([b"a"])) == []
        assert nodes.values == [b"a"]


def test_a_processor_that_keeps_keys_is_refused_likewise() -> None:
    builder = StreamsBuilder()
    builder.stream("in").process_values(returning(lambda record: record)).to("out")
    with TopologyTestDriver(builder) as driver:
        with pytest.raises(StreamsError, match=r"Returning\.process returned a Record"):
            driver.create_input_topic("in").pipe_input(b"k", b"v")
        assert driver.create_output_topic("out").read_records() == []


def test_a_processor_that_keeps_keys_must_have_methods_that_run() -> None:
    class Later(Processor):
        async def process(self, record: Record) -> None:  # type: ignore[override]
            """Do nothing."""

    builder = StreamsBuilder()
    builder.stream("in").process_values(Later, name="Keep").to("out")
    with pytest.raises(StreamsError, match="process of Later is a coroutine"):
        TopologyTestDriver(builder)


def test_a_task_fails_whose_processor_forwards_from_another_thread() -> None:
    """The task may be in the middle of undoing or of taking what was forwarded."""
    seen: list[BaseException] = []

    class Working(Processor):
        def process(self, record: Record) -> None:
            worker = threading.Thread(target=self.work, args=[record])
            worker.start()
            worker.join()

        def work(self, record: Record) -> None:
            try:
                self.context.forward(record)
            except StreamsError as error:
                seen.append(error)

    task = Tasks(chain(Working), GroupSettings())
    assert task.run(batch([b"a"])) == []
    assert '"0" forwards from a thread of its own' in str(seen[0])
    with pytest.raises(ProcessingFailedError, match=r'"0" forwards .* \(.*\.py:\d+ in work'):
        task.run()


def test_a_task_fails_if_another_thread_has_changed_a_store_between_its_steps() -> None:
    """It may do so in the middle of a commit: then the change is in the store and not in Kafka."""

    class Keeping(Processor):
        def init(self, context: ProcessorContext) -> None:
            super().init(context)
            self.kept: Any = context.get_state_store("kept")
            self.kept.put(b"begun", b"1")

        def process(self, record: Record) -> None:
            self.kept.put(b"last", record.value)

    builder = (
        TopologyBuilder().add_source("source", "in").add_processor("Keep", Keeping, ["source"])
    )
    kept = stores.key_value("kept", serdes.bytes, serdes.bytes)
    (group,) = builder.add_state_store(kept, "Keep").build().groups
    task = Tasks(group, GroupSettings())
    for offset in range(2):
        task.run(batch([b"a"], offset=offset))
        task.stores["kept"].commit(offset)
    task.run(batch([b"a"], offset=2))
    thread = threading.Thread(target=task.stores["kept"].put, args=[b"k", b"v"])
    thread.start()
    thread.join()
    with pytest.raises(ProcessingFailedError, match='"kept" was changed while its task was not'):
        task.run(batch([b"a"], offset=3))


def test_a_task_may_go_on_in_another_thread() -> None:
    """It does so from call to call; what counts is who calls its processors."""
    task = Tasks(chain(Each), GroupSettings())
    with ThreadPoolExecutor(1) as threads:
        assert len(threads.submit(task.run, batch([b"a"])).result()) == 1
    assert len(task.run(batch([b"b"], offset=1))) == 1


@pytest.mark.parametrize("callback", [later, generated, generated_later])
@pytest.mark.parametrize("type_", PunctuationType)
def test_a_punctuation_that_nobody_would_run_is_refused(
    callback: Any, type_: PunctuationType
) -> None:
    def schedule(context: ProcessorContext) -> None:
        context.schedule(1, type_, callback)

    with pytest.raises(StreamsError, match=rf"not an? .*: calling it runs nothing \({FILE}:"):
        Nodes(chain(starting(schedule)))


@pytest.mark.parametrize("words", RESULTS)
def test_a_punctuation_that_returns_its_result_fails_the_task(words: str) -> None:
    def schedule(context: ProcessorContext) -> None:
        result = RESULTS[words]
        context.schedule(1, PunctuationType.STREAM_TIME, lambda time: result(Record(0, 0, 0)))  # type: ignore[arg-type]

    task = Tasks(chain(starting(schedule)), GroupSettings())
    with pytest.raises(ProcessingFailedError) as failed:
        task.run(batch([b"a"]))
    assert words.partition(":")[0] in str(failed.value)


ACTIONS: dict[str, Callable[[Any, Any], object]] = {
    "filter": lambda stream, given: stream.filter(given),
    "filter_not": lambda stream, given: stream.filter_not(given),
    "peek": lambda stream, given: stream.peek(given),
    "for_each": lambda stream, given: stream.for_each(given),
    "filter of a table": lambda stream, given: stream.to_table(name="T").filter(given, name="F"),
    "split": lambda stream, given: stream.split({"one": given}),
}


def pairs(key: object, value: object) -> Iterator[object]:
    yield key


class CallsLater:
    async def __call__(self, key: object, value: object) -> None:
        """Do nothing."""


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("given", [pairs, CallsLater()], ids=["generator", "coroutine"])
def test_a_function_of_the_dsl_that_nobody_would_run_is_refused(action: str, given: object) -> None:
    stream = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.string).stream("in")
    with pytest.raises(TopologyError, match=r"takes a function of key and value.*, not an? "):
        ACTIONS[action](stream, given)


def test_a_generator_may_give_several_values() -> None:
    builder = StreamsBuilder()
    builder.stream("in").flat_map_values(generated).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.create_input_topic("in").pipe_input(b"k", b"v")
        assert driver.create_output_topic("out").read_key_values() == [(b"k", b"v")]


@pytest.mark.parametrize("verb", ["peek", "for_each"])
def test_an_action_that_returns_a_coroutine_rejects_the_record(verb: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    getattr(stream, verb)(lambda key, value: later(value))
    with TopologyTestDriver(builder) as driver, pytest.raises(StreamsError, match="nobody runs"):
        driver.create_input_topic("in").pipe_input(b"k", b"v")

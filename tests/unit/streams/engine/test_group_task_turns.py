"""Tasks whose inputs take turns: records one by one, whatever ends a run of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline import Batch, ProcessorContext, PunctuationType, Record
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from tests.unit.streams.nodes import CountSeen, Each, Tasks, Whole, batch, calling, chain, content

SKIP = GroupSettings(on_error=OnError.SKIP)
TOPICS = ["a", "b", "c"]


def values_at(timestamps: Sequence[int], bad: Sequence[int], topic: str) -> list[bytes]:
    return [
        b"bad" if index in bad else b"%s%d" % (topic.encode(), timestamp)
        for index, timestamp in enumerate(timestamps)
    ]


def by_rule(columns: dict[str, tuple[list[int], list[bytes]]]) -> list[bytes]:
    """Order values by the rule itself: the smallest head is next, and then the first topic."""
    left = {topic: list(zip(*column, strict=True)) for topic, column in columns.items()}
    ordered = []
    while any(left.values()):
        topic = min((t for t in left if left[t]), key=lambda t: left[t][0][0])
        ordered.append(left[topic].pop(0)[1])
    return ordered


@given(data=st.data())
def test_bad_records_and_limits_of_time_change_neither_order_nor_counts(
    data: st.DataObject,
) -> None:
    task = Tasks(chain(CountSeen, Each, topics=TOPICS, uses=[0]), SKIP)
    columns = {}
    for topic in TOPICS:
        timestamps = data.draw(st.lists(st.integers(0, 9), max_size=12), label=topic)
        bad = data.draw(st.sets(st.integers(0, 11), max_size=3))
        columns[topic] = timestamps, values_at(timestamps, sorted(bad), topic)
    for topic, (timestamps, values) in columns.items():
        cut = data.draw(st.integers(0, len(values)))
        for start, stop in ((0, cut), (cut, len(values))):
            if start < stop:
                times = timestamps[start:stop]
                task.task.add(
                    batch(values[start:stop], timestamps=times, topic=topic, offset=start)
                )
    ordered = by_rule(columns)
    done: list[bytes | None] = []
    skipped = read = 0
    while True:
        step = task.task.step(0, task.partitions, data.draw(st.sampled_from([0.0, float("inf")])))
        outputs, figures = task.task.take()
        done += [output[2] for output in outputs if isinstance(output, tuple)]
        skipped += figures.skipped
        read += figures.records_in
        assert read == sum(task.task.position((t, 0)) or 0 for t in TOPICS), "counts fit positions"
        if not step.has_more:
            break
    good = [value for value in ordered if value != b"bad"]
    assert (done, skipped) == (good, len(ordered) - len(good))
    assert content(task.stores["seen"]) == {value: b"%d" % good.count(value) for value in good}
    largest = [max(timestamps, default=-1) for timestamps, _ in columns.values()]
    assert [task.task.partition_time((topic, 0)) for topic in TOPICS] == largest


def at(topic: str, *timestamps: int) -> RecordBatch:
    return batch(values_at(timestamps, (), topic), timestamps=timestamps, topic=topic)


def fed(*processors: Any) -> Tasks:
    """Return a task that has records of two inputs which take turns."""
    task = Tasks(chain(*processors, topics=["a", "b"]), GroupSettings())
    task.task.add(at("a", 10, 20, 30))
    task.task.add(at("b", 15, 25, 35))
    return task


def stepped(task: Tasks) -> list[bytes | None]:
    task.task.step(0, task.partitions)
    return [value for _, _, value, _ in task.taken()]


def test_a_step_ends_after_the_record_whose_processor_asked_for_a_commit() -> None:
    def commit_at_15(context: ProcessorContext, record: Record) -> None:
        context.forward(record)
        if record.timestamp == 15:
            context.commit()

    task = fed(calling(commit_at_15))
    assert stepped(task) == [b"a10", b"b15"]
    assert (task.task.position(("a", 0)), task.task.position(("b", 0))) == (1, 1)
    assert stepped(task) == [b"a20", b"b25", b"a30", b"b35"]


def test_a_punctuation_by_stream_time_comes_behind_the_record_that_makes_it_due() -> None:
    def begin(context: ProcessorContext, record: Record) -> None:
        context.forward(record)
        if record.timestamp == 10:
            forward: Callable[[int], None] = lambda now: context.forward(  # noqa: E731
                Record(None, b"at %d" % now, now)
            )
            context.schedule(15, PunctuationType.STREAM_TIME, forward)

    task = fed(calling(begin))
    expected = [b"a10", b"at 10", b"b15", b"at 15", b"a20", b"b25", b"a30", b"at 30", b"b35"]
    assert stepped(task) == expected


def test_processors_see_the_place_of_each_record() -> None:
    def place(context: ProcessorContext, record: Record) -> None:
        where = f"{context.topic}@{context.offset} {context.timestamp} {context.stream_time}"
        context.forward(record.with_value(where.encode()))

    assert stepped(fed(calling(place)))[:3] == [b"a@0 10 10", b"b@0 15 15", b"a@1 20 20"]


class Ways(EitherWay):
    """Forwards how it was called."""

    def process(self, batch: Batch) -> None:
        self.context.forward(batch.with_values([b"of %d" % len(batch)] * len(batch)))

    def process_record(self, record: Record) -> None:
        self.context.forward(record.with_value(b"alone"))


def test_processors_that_take_both_get_records_where_inputs_take_turns() -> None:
    assert stepped(fed(Ways)) == [b"alone"] * 6


def test_long_spans_stay_batches() -> None:
    task = Tasks(chain(Ways, topics=["a", "b"]), GroupSettings())
    task.task.add(at("a", *range(50)))
    task.task.add(at("b", 100))
    assert stepped(task) == [b"of 50"] * 50 + [b"alone"]


def test_a_user_s_batch_processor_gets_batches_even_if_they_are_short() -> None:
    offsets: list[Sequence[int] | None] = []

    class Offsets(Whole):
        def process(self, batch: Batch) -> None:
            offsets.append(batch.offsets)

    stepped(fed(Offsets))
    assert [None if each is None else list(each) for each in offsets] == [
        [0],
        [0],
        [1],
        [1],
        [2],
        [2],
    ]

"""A node group at work: forwarding, contexts, and the life cycle of processors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kafka_pipeline import (
    Batch,
    ProcessorContext,
    Record,
    StreamsError,
    TopologyBuilder,
)
from kafka_pipeline.common.record_batch import KafkaHeaders
from kafka_pipeline.streams.builtin.forward import ForwardProcessor
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.outputs import Output, OutputColumns
from tests.unit.streams.nodes import (
    CountSeen,
    Each,
    Nodes,
    Tasks,
    Whole,
    batch,
    calling,
    calling_whole,
    chain,
    content,
    fork,
    starting,
)

# Forwarding


def test_a_record_goes_to_all_children_in_the_order_in_which_they_were_added() -> None:
    nodes = Nodes(fork(Each, z=Each, a=Whole))
    nodes.process(batch([b"1", b"2"]))
    assert [(topic, value) for topic, _, value, _ in nodes.sent] == [
        ("z", b"1"),
        ("a", b"1"),
        ("z", b"2"),
        ("a", b"2"),
    ]


def test_a_batch_goes_to_all_children_whatever_they_are_made_for() -> None:
    nodes = Nodes(fork(Whole, z=Each, a=Whole))
    nodes.process(batch([b"1", b"2"]))
    assert [(topic, value) for topic, _, value, _ in nodes.sent] == [
        ("z", b"1"),
        ("z", b"2"),
        ("a", b"1"),
        ("a", b"2"),
    ]


def each_to_b(context: ProcessorContext, records: Batch) -> None:
    for record in records.records():
        context.forward(record, "b")


@pytest.mark.parametrize(
    "parent",
    [
        calling(lambda context, record: context.forward(record, "b")),
        calling(lambda context, record: context.forward(Batch.of(record), "b")),
        calling_whole(lambda context, records: context.forward(records, "b")),
        calling_whole(each_to_b),
    ],
)
@pytest.mark.parametrize("child", [Each, Whole])
def test_a_record_or_batch_can_go_to_one_child_only(parent: Any, child: Any) -> None:
    nodes = Nodes(fork(parent, a=child, b=child))
    assert nodes.process(batch([b"1", b"2"])) == []
    assert [(topic, value) for topic, _, value, _ in nodes.sent] == [("b", b"1"), ("b", b"2")]


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (
            lambda context, record: context.forward(record, "c"),
            '"parent" has no child "c" to forward to, only "a", "b"',
        ),
        (
            lambda context, record: context.forward("text"),
            '"parent" forwards a str: make it a Record or a Batch',
        ),
        (
            lambda context, record: context.forward("text", "a"),
            '"parent" forwards a str: make it a Record or a Batch',
        ),
        (
            lambda context, record: context.forward(Batch([], [], []), "c"),
            '"parent" has no child "c" to forward to, only "a", "b"',
        ),
    ],
)
def test_what_cannot_be_forwarded_rejects_the_record_with_a_clear_reason(
    forward: Callable[[ProcessorContext, Record], None], message: str
) -> None:
    (rejection,) = Nodes(fork(calling(forward), a=Each, b=Each)).process(batch([b"1"]))
    assert isinstance(rejection.error, StreamsError)
    assert str(rejection.error) == message


def test_a_node_without_children_may_forward_to_nobody() -> None:
    builder = TopologyBuilder()
    builder.add_source("source", "in")
    builder.add_processor("last", Each, "source")
    (group,) = builder.build().groups
    nodes = Nodes(group)
    assert nodes.process(batch([b"1"])) == []
    assert nodes.runtime.outputs == []


def test_children_have_processed_a_record_when_forward_returns() -> None:
    steps: list[str] = []

    def parent(context: ProcessorContext, record: Record) -> None:
        steps.append("before")
        context.forward(record)
        steps.append("behind")

    child = calling(lambda context, record: steps.append("child"))
    Nodes(fork(calling(parent), a=child)).process(batch([b"1"]))
    assert steps == ["before", "child", "behind"]


def test_nobody_gets_a_batch_without_records() -> None:
    sizes: list[int] = []
    nobody = calling_whole(lambda context, records: context.forward(records.head(0)))
    child = calling_whole(lambda context, records: sizes.append(len(records)))
    Nodes(fork(nobody, a=child)).process(batch([b"1"]))
    assert sizes == []


def test_records_keep_what_a_processor_does_not_change() -> None:
    headers = [("h", b"1"), ("h", None)]

    def change(context: ProcessorContext, record: Record) -> None:
        context.forward(record.with_value(b"new"))
        context.forward(record.with_key(b"k2").with_timestamp(8).with_headers([]))

    nodes = Nodes(chain(calling(change)))
    nodes.process(batch([b"1"], keys=[b"k"], timestamps=[7], headers=[headers]))
    assert nodes.runtime.outputs == [
        ("out", b"k", b"new", -1, 7, headers),
        ("out", b"k2", b"1", -1, 8, None),
    ]


@pytest.mark.parametrize("ahead", [Each, ForwardProcessor])
def test_headers_cannot_be_changed_in_place(ahead: Any) -> None:
    """Others see the same headers, also the same call for the record if its batch is repeated."""

    def mark(context: ProcessorContext, record: Record) -> None:
        record.headers.append(("mark", b"1"))  # type: ignore[attr-defined]
        context.forward(record)

    nodes = Nodes(chain(ahead, calling(mark)))
    (rejection,) = nodes.process(batch([b"1"], headers=[[("h", b"1")]]))
    assert isinstance(rejection.error, AttributeError)


def test_a_change_for_one_child_does_not_show_to_another() -> None:
    def later(context: ProcessorContext, record: Record) -> None:
        context.forward(record.with_timestamp(record.timestamp + 10))

    nodes = Nodes(fork(Each, a=calling(later), b=Each, c=calling(later)))
    nodes.process(batch([b"1"], timestamps=[5]))
    assert [time for time, _ in times_and_headers(nodes.runtime.outputs)] == [15, 5, 15]


@pytest.mark.parametrize("columnar", [Each, Whole, ForwardProcessor])
def test_keys_values_times_and_headers_pass_as_they_are(columnar: Any) -> None:
    records = batch(
        [b"1", None, b""],
        keys=[b"k", None, b""],
        timestamps=[5, 3, 9],
        headers=[[("h", b"1")], None, []],
    )
    nodes = Nodes(chain(columnar), partition=6)
    nodes.process(records)
    assert nodes.sent == [
        ("out", b"k", b"1", -1),
        ("out", None, None, 2),  # of 4 partitions, for the task's number 6
        ("out", b"", b"", -1),
    ]
    assert times_and_headers(nodes.runtime.outputs) == [(5, [("h", b"1")]), (3, None), (9, None)]


def times_and_headers(outputs: list[Output]) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    for output in outputs:
        if isinstance(output, OutputColumns):
            headers = output.headers or [None] * len(output.timestamps)
            found += zip(output.timestamps, headers, strict=True)
        else:
            assert isinstance(output, tuple)
            found.append((output[4], output[5]))
    return found


class Column:
    """Items that only come by `to_pylist`, as those of an Arrow array."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def to_pylist(self) -> list[Any]:
        return self._items


@pytest.mark.parametrize("child", [Each, ForwardProcessor])
def test_columns_need_not_be_lists(child: Any) -> None:
    def columns(context: ProcessorContext, records: Batch) -> None:
        given: Any = [Column([b"k", None]), Column([b"1", None]), Column([7, 8])]
        context.forward(Batch(*given))

    nodes = Nodes(chain(calling_whole(columns), child))
    assert nodes.process(batch([b"x"])) == []
    assert nodes.sent == [("out", b"k", b"1", -1), ("out", None, None, 0)]
    assert times_and_headers(nodes.runtime.outputs) == [(7, None), (8, None)]


# What processors get to know


def test_the_context_tells_where_a_record_comes_from_and_where_it_is_processed() -> None:
    told: list[tuple[object, ...]] = []

    def tell(context: ProcessorContext, record: Record) -> None:
        told.append(
            (
                context.topic,
                context.partition,
                context.offset,
                context.timestamp,
                list(context.headers),
                context.application_id,
                context.task_id,
                context.current_system_time,
            )
        )

    nodes = Nodes(chain(Each, calling(tell)), partition=3)
    nodes.clock.now_ms = 99
    headers: list[KafkaHeaders] = [[("h", b"1")], None]
    nodes.process(batch([b"1", b"2"], timestamps=[5, 4], partition=3, offset=10, headers=headers))
    assert told == [
        ("in", 3, 10, 5, [("h", b"1")], "app", "source_3", 99),
        ("in", 3, 11, 4, [], "app", "source_3", 99),
    ]


@pytest.mark.parametrize("inner", [calling, calling_whole])
def test_the_context_tells_nothing_of_single_records_within_a_batch(
    inner: Callable[[Any], Any],
) -> None:
    told: list[tuple[object, ...]] = []

    def tell(context: ProcessorContext, given: object) -> None:
        told.append((context.topic, context.partition, context.offset, list(context.headers)))

    nodes = Nodes(chain(ForwardProcessor, inner(tell)))
    nodes.process(batch([b"1"], headers=[[("h", b"1")]]))
    assert told == [(None, None, None, [])]


@pytest.mark.parametrize(
    ("kind", "seen"), [(calling, [5, 9, 9]), (calling_whole, [5])], ids=["records", "batch"]
)
def test_stream_time_is_the_largest_timestamp_so_far_with_that_of_the_first_record_in_hand(
    kind: Callable[[Any], Any], seen: list[int]
) -> None:
    times: list[int] = []
    task = Tasks(
        chain(kind(lambda context, given: times.append(context.stream_time))), GroupSettings()
    )
    task.run(batch([b""] * 3, timestamps=[5, 9, 7]))
    assert times == seen
    task.run(batch([b""], timestamps=[1], offset=3))
    assert times[-1] == 9


def test_a_store_that_is_not_connected_cannot_be_had() -> None:
    reach = starting(lambda context: context.get_state_store("seen"))
    with pytest.raises(StreamsError, match=re.escape('processor "1" has no store "seen": connect')):
        Nodes(chain(CountSeen, reach, uses=[0]))


def test_processors_that_share_a_store_see_each_others_writes() -> None:
    nodes = Nodes(chain(CountSeen, CountSeen, uses=[0, 1]))
    nodes.process(batch([b"a"]))
    assert content(nodes.stores["seen"]) == {b"a": b"2"}


def test_a_commit_can_be_asked_for() -> None:
    nodes = Nodes(chain(calling(lambda context, record: context.commit())))
    assert not nodes.runtime.commit_requested
    nodes.process(batch([b"1"]))
    assert nodes.runtime.commit_requested


# Their lives


class Told(Each):
    """Records when it begins and ends; raises where its name asks for it."""

    def __init__(self, name: str, steps: list[str], fails: tuple[str, ...] = ()) -> None:
        self._name, self._steps, self._fails = name, steps, fails

    def init(self, context: ProcessorContext) -> None:
        self._step("init")

    def close(self) -> None:
        self._step("close")

    def _step(self, what: str) -> None:
        self._steps.append(f"{what} {self._name}")
        if what in self._fails:
            raise ValueError(f"{what} {self._name}")


def test_each_processor_begins_and_ends_once() -> None:
    steps: list[str] = []
    nodes = Nodes(chain(lambda: Told("a", steps), lambda: Told("b", steps)))
    assert sorted(steps) == ["init a", "init b"]
    nodes.runtime.close()
    nodes.runtime.close()
    assert steps[2:] == ["close a", "close b"]


def test_all_processors_are_closed_though_one_fails_to() -> None:
    steps: list[str] = []
    nodes = Nodes(chain(lambda: Told("a", steps, ("close",)), lambda: Told("b", steps, ("close",))))
    with pytest.raises(ValueError, match="close a"):
        nodes.runtime.close()
    assert steps[2:] == ["close a", "close b"]


def test_those_that_began_are_closed_if_another_one_cannot_begin() -> None:
    steps: list[str] = []
    with pytest.raises(ValueError, match="init a"):
        Nodes(chain(lambda: Told("a", steps, ("init",)), lambda: Told("b", steps)))
    assert steps == ["init b", "init a", "close b"]


def test_what_is_no_processor_is_refused_by_name() -> None:
    with pytest.raises(StreamsError, match=r'processor "0" is a list: make it a subclass of'):
        Nodes(chain(list))


def test_a_topic_without_a_source_is_refused() -> None:
    with pytest.raises(StreamsError, match="no source reads topic other"):
        Nodes(chain(Each)).process(batch([b"1"], topic="other"))

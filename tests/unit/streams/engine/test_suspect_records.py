"""Records that were being processed when a worker ended: alone, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_pipeline import AsyncProcessor, Record, TopologyBuilder
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.protocol.suspects import CallKind, Suspect
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.timestamps import RecordView
from tests.unit.streams.nodes import CountSeenWhole, Tasks, Whole, batch, calling, chain

FAIL = GroupSettings()
DEAD_LETTER = GroupSettings(on_error=OnError.DEAD_LETTER, dead_letter_topic="dead")
HOW = "SIGSEGV in native code, called from shop.py:12 in process"
RANGE = Suspect(CallKind.PROCESS, "in", 0, 11, 12)
VERDICT = Suspect(CallKind.PROCESS, "in", 0, 12, 12, HOW)


class Marked:
    """A mark that records what was set."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []
        self.is_set = False

    def set(
        self,
        kind: CallKind,
        topic: str = "",
        partition: int = 0,
        first: int = 0,
        last: int = 0,
        thread: int = 0,
    ) -> None:
        self.is_set = True
        if kind is CallKind.PROCESS:
            self.said.append((topic, first, last))

    def clear(self) -> None:
        self.is_set = False


def tasks(
    group: NodeGroup, settings: GroupSettings, suspects: Sequence[Suspect], mark: Marked
) -> Tasks:
    return Tasks(group, settings, suspects=suspects, new_mark=lambda: mark)


def seen_by(seen: list[Any]) -> NodeGroup:
    return chain(calling(lambda _, record: seen.append(record.value)))


RECORDS = batch([b"a", b"b", b"c", b"d"], offset=10)


def test_each_call_is_marked_with_the_records_that_it_may_be_about() -> None:
    mark = Marked()
    tasks(seen_by([]), FAIL, [], mark).run(RECORDS)
    assert mark.said == [("in", 10, 13)]
    assert not mark.is_set


@pytest.mark.parametrize("group", [seen_by([]), chain(CountSeenWhole, Whole, uses=[0])])
def test_suspects_go_one_at_a_time_and_the_others_together(group: NodeGroup) -> None:
    mark = Marked()
    tasks(group, FAIL, [RANGE], mark).run(RECORDS)
    assert mark.said == [("in", 10, 10), ("in", 11, 11), ("in", 12, 12), ("in", 13, 13)]


def test_record_with_a_verdict_is_set_aside_without_a_call() -> None:
    seen: list[Any] = []
    task = tasks(seen_by(seen), DEAD_LETTER, [VERDICT], Marked())
    task.task.add(RECORDS)
    task.task.step(0, task.partitions)
    outputs, figures = task.task.take()
    assert seen == [b"a", b"b", b"d"]
    assert (figures.dead_letters, figures.records_in) == (1, 4)
    (letter,) = [each for each in outputs if isinstance(each, tuple) and each[0] == "dead"]
    assert letter[2] == b"c"
    headers = dict(letter[5] or [])
    assert headers["__streams.errors.exception"] == b"EndedProcess"
    assert headers["__streams.errors.message"] == f"ended the process: {HOW}".encode()
    assert headers["__streams.errors.offset"] == b"12"
    assert task.task.position(("in", 0)) == 14


def test_record_with_a_verdict_fails_the_task_if_on_error_says_so() -> None:
    task = tasks(seen_by([]), FAIL, [VERDICT], Marked())
    with pytest.raises(ProcessingFailedError) as raised:
        task.run(RECORDS)
    assert str(raised.value) == f"record in[0]@12: ended the process: {HOW}"
    assert task.task.position(("in", 0)) == 12


def test_extractor_is_not_called_for_a_record_with_a_verdict() -> None:
    seen: list[int] = []

    def extract(record: RecordView, partition_time: int) -> int:
        seen.append(record.offset)
        return 5

    builder = TopologyBuilder()
    builder.add_source("Source", "in", timestamp_extractor=extract)
    builder.add_processor("Seen", calling(lambda _, record: None), ["Source"])
    (group,) = builder.build().groups
    tasks(group, DEAD_LETTER, [VERDICT], Marked()).run(RECORDS)
    assert seen == [10, 11, 13]


def test_suspects_of_an_async_processor_are_in_flight_alone() -> None:
    most: dict[bytes, int] = {}
    in_flight: set[bytes] = set()

    class Calls(AsyncProcessor):
        async def process(self, record: Record) -> None:
            in_flight.add(record.value)
            for _ in range(3):
                await asyncio.sleep(0)
                most[record.value] = max(most.get(record.value, 0), len(in_flight))
            in_flight.discard(record.value)

    builder = TopologyBuilder()
    builder.add_source("Source", "in")
    builder.add_processor("Calls", Calls, ["Source"])
    (group,) = builder.build().groups
    mark = Marked()
    tasks(group, FAIL, [RANGE], mark).run(RECORDS)
    assert (most[b"b"], most[b"c"]) == (1, 1)
    assert ("in", 11, 11) in mark.said
    assert not mark.is_set

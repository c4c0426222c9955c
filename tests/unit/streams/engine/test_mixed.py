"""Processors that get the records of all their sources in one batch."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.mixed import MixedBatch, MixedProcessor
from kafka_pipeline.streams.processor import RecordRejectedError
from kafka_pipeline.streams.record import Batch
from tests.unit.streams.engine.test_group_task_turns import by_rule, values_at
from tests.unit.streams.nodes import SEEN, Tasks, batch, chain, content

SKIP = GroupSettings(on_error=OnError.SKIP, accumulates=True)
TOPICS = ["a", "b", "c"]


class Mixed(MixedProcessor):
    """Forwards batches and counts their values; rejects what is bad, and says which if `exact`."""

    exact: ClassVar[bool] = False
    sizes: ClassVar[list[int]] = []

    def process(self, batch: Batch) -> None:
        assert isinstance(batch, MixedBatch)
        assert batch.offsets is not None
        self.sizes.append(len(batch))
        for topic, value in zip(batch.topics, batch.values, strict=True):
            assert value == b"bad" or value.startswith(topic.encode())
        bad = [index for index, value in enumerate(batch.values) if value == b"bad"]
        part = batch.head(bad[0]) if bad and self.exact else batch
        seen = self.context.get_state_store(SEEN.name)
        for value in part.values:
            seen.put(value, (seen.get(value) or 0) + 1)
        if len(part):
            self.context.forward(part)
        if bad:
            raise RecordRejectedError("bad", batch, bad[0]) if self.exact else ValueError("bad")


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@given(data=st.data())
def test_records_come_in_the_order_of_time_without_the_bad_ones(
    exact: bool, accumulates: bool, data: st.DataObject
) -> None:
    Mixed.exact = exact
    task = Tasks(chain(Mixed, topics=TOPICS, uses=[0]), replace(SKIP, accumulates=accumulates))
    columns = {}
    for topic in TOPICS:
        timestamps = data.draw(st.lists(st.integers(0, 9), max_size=12), label=topic)
        bad = data.draw(st.sets(st.integers(0, 11), max_size=3))
        columns[topic] = timestamps, values_at(timestamps, sorted(bad), topic)
        if timestamps:
            task.task.add(batch(columns[topic][1], timestamps=timestamps, topic=topic))
    while task.task.step(0, task.partitions).has_more:
        pass
    ordered = by_rule(columns)
    good = [value for value in ordered if value != b"bad"]
    assert [value for _, _, value, _ in task.taken()] == good
    assert content(task.stores["seen"]) == {v: b"%d" % good.count(v) for v in good}
    for topic, (timestamps, _) in columns.items():
        assert task.task.position((topic, 0)) == (len(timestamps) or None)


def test_a_call_gets_what_was_accumulated() -> None:
    Mixed.exact, Mixed.sizes = False, []
    task = Tasks(chain(Mixed, topics=["a", "b"], uses=[0]), SKIP)
    task.task.add(batch([b"a"] * 4, timestamps=[1, 3, 5, 7], topic="a"))
    task.task.add(batch([b"b"] * 4, timestamps=[2, 4, 6, 8], topic="b"))
    task.task.step(0, task.partitions)
    assert Mixed.sizes == [7, 1]
    assert [value for _, _, value, _ in task.taken()] == [b"a", b"b"] * 4

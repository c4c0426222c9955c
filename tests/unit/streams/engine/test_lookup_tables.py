"""Records that look up tables which their task keeps: batches see what single records see."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline import TopologyBuilder, serdes, stores
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.group_settings import GroupSettings
from kafka_pipeline.streams.engine.mixed import MixedProcessor, runs_of
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.record import Batch, items_of
from kafka_pipeline.streams.sql.topic_tables import TopicTable
from kafka_pipeline.streams.stores import StoreBuilder, VersionedKeyValueStore
from tests.unit.streams.nodes import Sent, Tasks, content

SKIP = GroupSettings(on_error=OnError.SKIP, accumulates=True)
HISTORY_MS = 4
LATEST = stores.timestamped_key_value("table", serdes.bytes, serdes.bytes)
HISTORY = stores.versioned_key_value(
    "table", serdes.bytes, serdes.bytes, history_retention_ms=HISTORY_MS
)
TOPICS = ("rows", "a", "b")
"""At equal times, the table comes first."""


class Entry(NamedTuple):
    """A record of a topic; a value of `bad` is rejected, in the table as in the other topics."""

    time: int
    key: bytes | None
    is_bad: bool


class Look(MixedProcessor):
    """Looks records up in the table, and forwards what it finds; notes the size of each call."""

    sizes: ClassVar[list[int]] = []

    def process(self, batch: Batch) -> None:
        self.sizes.append(len(batch))
        table = self.context.get_state_store("table")
        found: list[bytes | None] = []
        columns = zip(batch.keys, batch.values, items_of(batch.timestamps), strict=True)
        for key, value, time in columns:
            if value == b"bad":
                raise ValueError("bad")
            if isinstance(table, VersionedKeyValueStore):
                seen: Any = table.get_serialized(key, time, time)
            else:
                seen = key and table.get(key)
            found.append(b"%s sees %s" % (value, repr(seen).encode()))
        self.context.forward(batch.with_values(found))


def group_of(store: StoreBuilder[Any, Any], history_ms: int | None) -> NodeGroup:
    builder = TopologyBuilder()
    for topic in TOPICS:
        builder.add_source(topic, topic)
    fill = partial(TopicTable, "table", "string", "", history_ms)
    builder.add_processor("fill", fill, "rows")
    builder.add_processor("look", Look, ["a", "b"])
    builder.add_state_store(store, ["fill", "look"])
    builder.add_sink("sink", "out", ["look"])
    (group,) = builder.build().groups
    return group


def batch_of(topic: str, entries: list[Entry], start: int, stop: int) -> RecordBatch:
    bad = b"\xff" if topic == "rows" else b"bad"
    part = range(start, stop)
    values: list[bytes | None] = [
        bad if entries[index].is_bad else b"%s%d" % (topic.encode(), index) for index in part
    ]
    times = [entries[index].time for index in part]
    return RecordBatch(topic, 0, [entries[i].key for i in part], values, times, list(part))


def in_order(columns: dict[str, list[Entry]]) -> Iterable[tuple[str, int]]:
    """Yield records by the rule: the smallest head is next, and then the first topic."""
    done = dict.fromkeys(columns, 0)
    while left := [topic for topic in TOPICS if done[topic] < len(columns[topic])]:
        topic = min(left, key=lambda each: columns[each][done[each]].time)
        yield topic, done[topic]
        done[topic] += 1


def end_of(task: Tasks, sent: list[Sent], *, has_history: bool) -> tuple[Any, ...]:
    # Each put sweeps a version that has expired, also one that is undone.
    kept = None if has_history else content(task.stores["table"])
    times = [task.task.partition_time((topic, 0)) for topic in TOPICS]
    positions = [task.task.position((topic, 0)) for topic in TOPICS]
    return sent, kept, times, positions


@pytest.mark.parametrize(("store", "history_ms"), [(LATEST, None), (HISTORY, HISTORY_MS)])
@given(data=st.data())
def test_a_batch_finds_what_records_find_one_by_one(
    store: StoreBuilder[Any, Any], history_ms: int | None, data: st.DataObject
) -> None:
    entry = st.builds(
        Entry,
        st.integers(0, 12),
        st.sampled_from([b"x", b"y", b"z"]),
        st.sampled_from([False] * 9 + [True]),
    )
    columns = {topic: data.draw(st.lists(entry, max_size=12), label=topic) for topic in TOPICS}
    group = group_of(store, history_ms)
    alone = Tasks(group, SKIP)
    expected: list[Sent] = []
    for topic, index in in_order(columns):
        expected += alone.run(batch_of(topic, columns[topic], index, index + 1))
    together = Tasks(group, SKIP)
    for topic, entries in columns.items():
        if entries:
            together.task.add(batch_of(topic, entries, 0, len(entries)))
    while together.task.step(0, together.partitions).has_more:
        pass
    found = end_of(together, together.taken(), has_history=store is HISTORY)
    assert found == end_of(alone, expected, has_history=store is HISTORY)


def test_updates_of_other_keys_do_not_divide_a_batch() -> None:
    task = Tasks(group_of(LATEST, None), SKIP)
    Look.sizes.clear()
    rows = [Entry(time, b"%d" % time, False) for time in range(40)]
    records = [Entry(time, b"%d" % (time - 1), False) for time in range(1, 41)]
    task.task.add(batch_of("rows", rows, 0, 40))
    task.task.add(batch_of("a", records, 0, 40))
    while task.task.step(0, task.partitions).has_more:
        pass
    sent = task.taken()
    assert [value for _, _, value, _ in sent] == [
        b"a%d sees ValueAndTimestamp(value=b'rows%d', timestamp=%d)" % (index, index, index)
        for index in range(40)
    ]
    assert len(Look.sizes) < 8, "the limit of a call doubles from 10"


def run_sizes(history_ms: int | None, *turns: tuple[str, bytes, int]) -> list[tuple[int, int]]:
    table = TopicTable("table", "string", "", history_ms)
    batches = [(RecordBatch(topic, 0, [key], [b""], [time], [0]), 0) for topic, key, time in turns]
    runs = runs_of(batches, {"rows": table})
    return [(len(run.updates.get("rows", ())), len(run.records)) for run in runs]


def test_an_update_begins_a_run_if_a_record_has_its_key() -> None:
    turns = ("a", b"x", 1), ("rows", b"y", 2), ("a", b"y", 3), ("rows", b"x", 4), ("a", b"x", 5)
    assert run_sizes(None, *turns) == [(1, 2), (1, 1)]


def test_an_update_begins_a_run_if_it_expires_what_a_record_sees() -> None:
    turns = ("a", b"x", 5), ("a", b"x", 1), ("rows", b"y", 11), ("rows", b"y", 12)
    assert run_sizes(10, *turns) == [(1, 2), (1, 0)]
    assert run_sizes(None, *turns) == [(2, 2)]

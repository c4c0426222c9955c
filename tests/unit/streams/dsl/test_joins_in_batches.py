"""Joins of streams take batches of all sides with the results of one record after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pipeline import StreamsBuilder, windows
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.nodes import Source
from kafka_pipeline.streams.engine.outputs import OutputColumns
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.nodes import Nodes, content, expanded

Row = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None, int]
"""Number of the topic, key, value, timestamp, headers, and how far the clock is ahead."""

TOPICS = ("left", "right", "third")
WINDOWS = {
    "around": windows.join(before_ms=5, after_ms=10, grace_ms=3),
    "the same time": windows.join(before_ms=0, after_ms=0, grace_ms=40),
    "later": windows.join(before_ms=-2, after_ms=9, grace_ms=0),
}
FLIPPED = windows.join(before_ms=9, after_ms=-2, grace_ms=1)


def joined(left: str | None, right: str | None) -> str:
    if left is not None and right is not None and "bad" in left + right:
        raise ValueError("no good")
    return f"{left}+{right}"


def plain(built: StreamsBuilder, method: str, window: Any) -> None:
    left, right = built.stream("left"), built.stream("right")
    getattr(left, method)(right, joined, window, name="Join").to("out")


def chained(built: StreamsBuilder, method: str, window: Any) -> None:
    """Have steps on both sides and after the join, and send what comes to one side elsewhere."""
    left = built.stream("left").flat_map_values(lambda value: [value, f"{value}2"])
    left.to("seen")
    right = built.stream("right").filter(lambda key, value: value != "y")
    result = getattr(left, method)(right, joined, window, name="Join")
    result.map_values(lambda value: f"({value})").to("out")
    result.group_by_key().count(name="Counts").to_stream().map_values(str).to("counts")


def twice(built: StreamsBuilder, method: str, window: Any) -> None:
    """Join the results of a join with a third stream.

    The second join does not fail: it may get what the first one gives as time passes, where no
    record can be rejected, and the task ends.
    """
    left, right, third = map(built.stream, TOPICS)
    first = getattr(left, method)(right, joined, window, name="First")
    getattr(third, method)(first, "{}+{}".format, FLIPPED, name="Second").to("out")


Shape = Callable[[StreamsBuilder, str, Any], None]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([b"a", b"a", b"b", None]),
        st.sampled_from([b"x", b"y", b"", b"z", None, b"bad"]),
        st.integers(0, 60) | st.integers(30, 45),
        st.sampled_from([None, [("h", b"1")]]),
        st.sampled_from([0, 0, 2, 30]),
    ),
    min_size=8,
    max_size=50,
)


def group(shape: Shape, method: str, window: Any) -> NodeGroup:
    built = builder()
    shape(built, method, window)
    return next(each for each in built.build().groups if "left" in each.in_topics)


def turns_of(rows: Sequence[Row], first: int) -> list[tuple[RecordBatch, int]]:
    """Return records of a batch for each topic, in the order of the rows."""
    parts: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row[0]].append(row)
    batches = {}
    for number, part in parts.items():
        _, keys, values, times, headers, ahead = map(list, zip(*part, strict=True))
        clocks = [time + each for time, each in zip(times, ahead, strict=True)]
        batches[number] = RecordBatch(
            TOPICS[number],
            0,
            keys,
            values,
            times,
            list(range(first, first + len(part))),
            headers if any(headers) else None,
            clocks=clocks if any(ahead) else None,
        )
    counts: dict[int, int] = defaultdict(int)
    turns = []
    for number, *_ in rows:
        turns.append((batches[number], counts[number]))
        counts[number] += 1
    return turns


def results(
    node_group: NodeGroup, rows: Sequence[Row], size: int, *, follows_records: bool
) -> dict[str, Any]:
    """Return what is sent to each topic, dropped and rejected, and what is in the stores.

    Up to `size` records are processed at once. A third of all are followed by a commit, and by
    progress of time.
    """
    nodes = Nodes(node_group, follows_records=follows_records)
    third = len(rows) // 3
    sent: dict[str, Any] = defaultdict(list)
    for part, start in enumerate(range(0, len(rows), third)):
        chunk = rows[start : start + third]
        for at in range(0, len(chunk), size):
            turns = turns_of(chunk[at : at + size], start + at)
            while turns:
                count, error = nodes.runtime.process_turns(turns)
                if error is not None:
                    batch, index = turns[count]
                    sent["rejected"].append((batch.topic, batch.values[index], str(error)))
                    count += 1
                turns = turns[count:]
        nodes.runtime.pass_time(10 * part)
        for store in nodes.stores.values():
            store.commit(part + 1)
    for output in nodes.runtime.outputs:
        for topic, *rest in expanded(output):
            sent[topic].append(rest)
    sent["dropped"].sort()
    late = {s.name: s.dropped for s in nodes.runtime.nodes.counting_stores}
    stores = {name: content(store) for name, store in nodes.stores.items()}
    return {**sent, "late": late, "stores": stores}


@pytest.mark.parametrize("shape", [plain, chained, twice])
@pytest.mark.parametrize("method", ["join", "left_join", "outer_join"])
@settings(max_examples=10)
@given(rows=ROWS, window=st.sampled_from([*WINDOWS.values()]), follows_records=st.booleans())
def test_results_are_those_of_one_record_after_the_other(
    shape: Shape, method: str, rows: list[Row], window: Any, follows_records: bool
) -> None:
    node_group = group(shape, method, window)
    if "third" not in node_group.in_topics:
        rows = [(row[0] % 2, row[1], row[2], row[3], row[4], row[5]) for row in rows]
    expected = results(node_group, rows, 1, follows_records=follows_records)
    for size in (len(rows), 7):
        assert results(node_group, rows, size, follows_records=follows_records) == expected


def is_together(build: Callable[[StreamsBuilder], None]) -> bool:
    """Return whether records of several sources go through the nodes as batches."""
    built = builder()
    build(built)
    nodes = Nodes(next(each for each in built.build().groups if "left" in each.in_topics))
    rows: list[Row] = [(at % 2, b"a", b"x", at, None, 0) for at in range(8)]
    nodes.runtime.process_turns(turns_of(rows, 0))
    return any(isinstance(each, OutputColumns) for each in nodes.runtime.outputs)


def join_of(left: Any, right: Any) -> Any:
    return left.join(right, joined, WINDOWS["around"], name="Join")


def one_topic(built: StreamsBuilder) -> None:
    left, right = built.stream("left"), built.stream("right")
    left.to("out")
    right.to("out")
    join_of(left, right).to("joined")


def any_topic(built: StreamsBuilder) -> None:
    left, right = built.stream("left"), built.stream("right")
    left.to(lambda record: str(record.value))
    right.to("out")
    join_of(left, right).to("joined")


def merged(built: StreamsBuilder) -> None:
    left, right = built.stream("left"), built.stream("right")
    left.merge(right).to("merged")
    join_of(left, right).to("joined")


def counted(built: StreamsBuilder) -> None:
    left, right = built.stream("left"), built.stream("right")
    counts = left.group_by_key().count(name="Counts").to_stream().map_values(str)
    join_of(counts, right).to("joined")


def with_table(built: StreamsBuilder) -> None:
    table = built.table("right", name="Table")
    looked_up = built.stream("left").join(table, joined)
    join_of(looked_up, built.stream("third")).to("joined")


@pytest.mark.parametrize("build", [one_topic, any_topic, merged, counted, with_table])
def test_records_go_one_by_one_where_their_order_is_seen_elsewhere(
    build: Callable[[StreamsBuilder], None],
) -> None:
    assert not is_together(build)


def test_records_go_together_where_streams_meet_in_a_join_only() -> None:
    assert is_together(lambda built: plain(built, "join", WINDOWS["around"]))


def test_a_source_that_passes_records_on_one_by_one_keeps_the_others_from_batches() -> None:
    node_group = group(plain, "join", WINDOWS["around"])
    left, *_ = (each for each in node_group.nodes if isinstance(each, Source))
    nodes = tuple(
        replace(each, meets_at_points=False) if each is left else each for each in node_group.nodes
    )
    running = Nodes(replace(node_group, nodes=nodes))
    assert running.runtime.nodes.meeting_points == []

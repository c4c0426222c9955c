"""Joins and aggregates of tables take batches with the results of one record after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pipeline import StreamsBuilder, Suppress, serdes, windows
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.engine.nodes import Source
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.nodes import Nodes, content, expanded

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]
Part = tuple[str, list[Row]]
"""Consecutive records of a topic."""

ROW = st.tuples(
    st.sampled_from([b"a", b"b", b"c"]),
    st.sampled_from([b"x", b"y", b"bad", None]),
    st.integers(0, 60),
    st.sampled_from([None, [("h", b"1")]]),
)


def append(key: str, value: str, found: list[str]) -> list[str]:
    found.append(value)
    return found


def remove(key: str, value: str, found: list[str]) -> list[str]:
    if value == "bad":
        raise ValueError("no good")
    return [each for each in found if each != value] or None  # type: ignore[return-value]


def joined(left: str | None, right: str | None) -> str:
    if left == "bad" and right == "bad":
        raise ValueError("no good")
    return f"{left}+{right}"


def show_old(table: Any) -> None:
    """Send the old values of a table on, and show what comes of them."""
    by_value = table.group_by(lambda key, found: (str(found), str(found)), name="ByValue")
    by_value.aggregate(list, append, remove, name="Old", value_serde=serdes.json)


def group_of(built: StreamsBuilder, topic: str) -> NodeGroup:
    return next(each for each in built.build().groups if topic in each.in_topics)


def results(group: NodeGroup, parts: Sequence[Part], size: int) -> dict[str, Any]:
    """Return what is sent to each topic, what is rejected, and what is in the stores."""
    nodes = Nodes(group)
    rejected: list[tuple[str, int, str]] = []
    offset = 0
    for topic, rows in parts:
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            keys, values, times, headers = (list(column) for column in zip(*some, strict=True))
            offsets = range(offset, offset + len(some))
            offset += len(some)
            given = headers if any(headers) else None
            batch = RecordBatch(topic, 0, keys, values, times, offsets, given)
            found = nodes.process(batch)
            rejected += [(topic, batch.offsets[each.index], str(each.error)) for each in found]
    sent: dict[str, Any] = defaultdict(list)
    for output in nodes.runtime.outputs:
        for to, *rest in expanded(output):
            sent[to].append(rest)
    sent["dropped"].sort()
    stores = {name: content(store) for name, store in nodes.stores.items()}
    return {**sent, "rejected": rejected, "stores": stores}


DELETED = b"\0"
"""A version of a table in its store that deletes the key."""


def check(group: NodeGroup, parts: Sequence[Part], history: int | None = None) -> dict[str, Any]:
    """Check that batches of all sizes have the same results, and return them."""
    expected = results(group, parts, 1)
    for size in (6, 100):
        assert newest(results(group, parts, size), history) == newest(expected, history)
    return expected


def newest(found: dict[str, Any], history: int | None) -> dict[str, Any]:
    """Return results with the newest version of each key of a table with a history.

    When former versions go, and deletions that have no former ones, depends on the batches.
    """
    if history is None:
        return found
    stores = dict(found["stores"])
    name = next(name for name in ("Left", "Rows") if name in stores)
    versions = sorted(stores[name].items())
    stores[name] = {
        key: value
        for (key, value), (after, _) in pairwise([*versions, (b"", b"")])
        if after[:-8] != key[:-8] and value != DELETED
    }
    return {**found, "stores": stores}


@pytest.mark.parametrize("name", [None, "Joined"])
@pytest.mark.parametrize("method", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("old", [False, True], ids=["", "old"])
@settings(max_examples=15)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(["left", "right"]), st.lists(ROW, min_size=5, max_size=12)),
        min_size=2,
        max_size=5,
    ),
    history=st.sampled_from([None, 20]),
)
def test_joins_of_tables(
    name: str | None, method: str, old: bool, parts: list[Part], history: int | None
) -> None:
    built = builder()
    left = built.table("left", name="Left", history_retention_ms=history)
    table = getattr(left, method)(built.table("right", name="Right"), joined, name=name)
    table.to_stream().to("out")
    if old:
        show_old(table)
    check(group_of(built, "left"), parts, history)


@pytest.mark.parametrize("old", [False, True], ids=["", "old"])
@settings(max_examples=20)
@given(
    rows=st.lists(ROW, min_size=5, max_size=40),
    history=st.sampled_from([None, 20]),
)
def test_aggregates_of_tables(old: bool, rows: list[Row], history: int | None) -> None:
    built = builder()
    table = built.table("in", name="Rows", history_retention_ms=history)
    grouped = table.group_by(
        lambda key, text: None if key == "c" else (text, f"{key}{text}"), name="ByText"
    )
    lists = grouped.aggregate(list, append, remove, name="Lists", value_serde=serdes.json)
    lists.to_stream().to("out", value_serde=serdes.json)
    if old:
        show_old(lists)
    moved = "ByText-repartition"
    changes = check(group_of(built, "in"), [("in", rows)], history).get(moved)
    if changes:
        check(group_of(built, moved), [(moved, changes)])


SUPPRESSED = {
    "closed windows": Suppress.until_window_closes(),
    "time": Suppress.until_time_limit(5),
    "time and records": Suppress.until_time_limit(30, max_records=1),
    "time and bytes": Suppress.until_time_limit(30, max_bytes=100),
    "full": Suppress.until_time_limit(30, max_records=1, when_full="fail"),
}


@pytest.mark.parametrize("suppress", SUPPRESSED.values(), ids=SUPPRESSED)
@settings(max_examples=15)
@given(
    rows=st.lists(ROW, min_size=5, max_size=40),
    history=st.sampled_from([None, 20]),
    old=st.booleans(),
)
def test_suppressed_tables(
    suppress: Suppress, rows: list[Row], history: int | None, old: bool
) -> None:
    built = builder()
    table: Any = built.table("in", name="Rows", history_retention_ms=history)
    if suppress.limit_ms is None:
        windowed = table.to_stream().filter(lambda key, text: text is not None).group_by_key()
        tumbling = windowed.windowed_by(windows.tumbling(10, grace_ms=5))
        table = tumbling.reduce(lambda a, b: a + b, name="Texts")
    suppressed = table.suppress(suppress, name="Suppressed")
    shown = suppressed.to_stream().map(lambda key, text: (str(key), text), name="Shown")
    shown.to("out")
    if old:
        show_old(suppressed)
    check(group_of(built, "in"), [("in", rows)], history)


def test_what_waits_is_read_again_after_a_record_was_rejected() -> None:
    built = builder()
    table = built.table("in", name="Rows").suppress(Suppress.until_time_limit(5), name="Suppressed")
    table.map_values(lambda text: joined(text, text)).to_stream().to("out")
    rows: list[Row] = [
        *((key, b"x", at, None) for at, key in enumerate([b"a", b"b", b"c"])),
        (b"bad", b"bad", 3, None),
        *((b"%d" % at, b"y", at, None) for at in range(4, 12)),
    ]
    expected = check(group_of(built, "in"), [("in", rows)])
    assert [at for _, at, _ in expected["rejected"]] == [8, 9, 10, 11]


def in_order(build: Callable[[StreamsBuilder], None]) -> set[str]:
    """Return the sources that pass their records on one by one."""
    built = builder()
    build(built)
    nodes = (node for group in built.build().groups for node in group.nodes)
    return {node.name for node in nodes if isinstance(node, Source) and node.one_by_one}


def two_tables(built: StreamsBuilder) -> None:
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    left.join(right, joined).to_stream().to("out")


def chained(built: StreamsBuilder) -> None:
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    third = built.table("third", name="Third")
    left.join(right, joined).join(third, joined).to_stream().to("out")


def with_a_view_of_itself(built: StreamsBuilder) -> None:
    left, right = built.table("left", name="Left"), built.table("right", name="Right")
    left.join(left.map_values(str), joined).join(right, joined).to_stream().to("out")


def with_a_stream_of_itself(built: StreamsBuilder) -> None:
    left = built.table("left", name="Left")
    left.to_stream().join(left, joined).to("out")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (two_tables, set()),
        (chained, set()),
        (with_a_view_of_itself, {"left"}),
        (with_a_stream_of_itself, {"left"}),
    ],
)
def test_records_go_one_by_one_only_where_their_own_table_is_looked_up(
    build: Callable[[StreamsBuilder], None], expected: set[str]
) -> None:
    assert {name.removesuffix("-source").lower() for name in in_order(build)} == expected

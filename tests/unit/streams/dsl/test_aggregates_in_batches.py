"""Aggregates take batches with the results of one record after the other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pipeline import StreamsBuilder, agg, serdes, value, windows
from kafka_pipeline.common.pipelines.specs import EmitTime
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.engine.node_group import NodeGroup
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import builder
from tests.unit.streams.nodes import Nodes, content, expanded

Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]


def append(key: str, value: str, found: list[str]) -> list[str]:
    found.append(value)
    return found


def remove(key: str, value: str, found: list[str]) -> list[str]:
    return found[:-1]


def or_nothing(key: str, value: str, found: list[str]) -> list[str] | None:
    """Add to an aggregate of the caller's, and forget it as soon as it is long."""
    return None if len(found) == 3 else [*found, value]


def picky(key: str, value: str, found: list[str]) -> list[str]:
    if len(found) == 2 and value == "y":
        raise ValueError("no good")
    return [*found, value]


def joined(a: str, b: str) -> str:
    return f"{a},{b}"


Aggregate = Callable[[Any], Any]
AGGREGATES: dict[str, Aggregate] = {
    "count": lambda grouped: grouped.count(name="Table"),
    "text": lambda grouped: grouped.reduce(joined, name="Table", value_serde=serdes.string),
    "list": lambda grouped: grouped.aggregate(list, append, name="Table"),
    "forgotten": lambda grouped: grouped.aggregate(list, or_nothing, name="Table"),
    "rejected": lambda grouped: grouped.aggregate(list, picky, name="Table"),
    "fields": lambda grouped: grouped.agg("Table", n=agg.count(), last=agg.last(value())),
}
WINDOWS = {
    "tumbling": windows.tumbling(20, grace_ms=5),
    "hopping": windows.hopping(20, advance_ms=5, grace_ms=5),
    "sliding": windows.sliding(15, grace_ms=5),
}


def grouped(built: StreamsBuilder) -> Any:
    return built.stream("in", value_serde=serdes.string).group_by_key()


def with_old(table: Any) -> None:
    """Send the old aggregates on, and show what comes of them."""
    by_value = table.group_by(lambda key, found: (str(found), str(found)), name="ByValue")
    by_value.aggregate(list, append, remove, name="Old")


def group(aggregate: Aggregate, shape: str, emit: EmitTime, *, late: bool, old: bool) -> NodeGroup:
    built = builder(value_serde=serdes.json)
    stream = grouped(built)
    if shape:
        late_to = "late" if late else None
        stream = stream.windowed_by(WINDOWS[shape], emit=emit, late_to=late_to)
    table = aggregate(stream)
    shown = table.to_stream().map(lambda key, found: (str(key), found), name="Shown")
    shown.to("out", value_serde=serdes.json)
    if old:
        with_old(table)
    return next(each for each in built.build().groups if "in" in each.in_topics)


ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", None]),
        st.sampled_from([b"x", b"y", None]),
        st.integers(0, 60) | st.integers(100, 130),
        st.sampled_from([None, [("h", b"1")]]),
    ),
    min_size=5,
    max_size=40,
)


def batch_of(rows: Sequence[Row], first: int) -> RecordBatch:
    keys, values, times, headers = (list(column) for column in zip(*rows, strict=True))
    offsets = list(range(first, first + len(rows)))
    return RecordBatch("in", 0, keys, values, times, offsets, headers if any(headers) else None)


def results(node_group: NodeGroup, rows: Sequence[Row], size: int) -> dict[str, Any]:
    """Return what is sent to each topic, dropped and rejected, and what is in the stores."""
    nodes, rejected = Nodes(node_group), []
    for start in range(0, len(rows), size):
        found = nodes.process(batch_of(rows[start : start + size], start))
        rejected += [(start + each.index, str(each.error)) for each in found]
    sent: dict[str, Any] = defaultdict(list)
    for output in nodes.runtime.outputs:
        for topic, *rest in expanded(output):
            sent[topic].append(rest)
    stores = {name: content(store) for name, store in nodes.stores.items()}
    sent["dropped"].sort()
    return {**sent, "rejected": rejected, "stores": stores}


@pytest.mark.parametrize("old", long_but_the_first([False, True]), ids=["", "old"])
@pytest.mark.parametrize("shape", ["", *WINDOWS])
@pytest.mark.parametrize("aggregate", AGGREGATES.values(), ids=AGGREGATES)
@settings(max_examples=15)
@given(rows=ROWS, late=st.booleans(), emit=st.sampled_from(get_args(EmitTime)))
def test_results_are_those_of_one_record_after_the_other(
    aggregate: Aggregate, shape: str, old: bool, rows: list[Row], late: bool, emit: EmitTime
) -> None:
    if old and emit == "on_close":
        emit = "on_update"
    node_group = group(aggregate, shape, emit, late=late, old=old)
    expected = results(node_group, rows, 1)
    assert results(node_group, rows, len(rows)) == expected
    assert results(node_group, rows, 6) == expected


def test_functions_get_aggregates_of_their_own() -> None:
    """A function that keeps or changes what it gets must not change another result."""
    node_group = group(AGGREGATES["list"], "tumbling", "on_update", late=False, old=False)
    rows: list[Row] = [(b"a", b"%d" % number, number, None) for number in range(6)]
    values = [json.loads(value) for _, value, *_ in results(node_group, rows, 6)["out"]]
    assert values == [[str(each) for each in range(count)] for count in range(1, 7)]


def test_a_number_that_json_reads_as_another_type_stays_what_it_was_written_as() -> None:
    """A float that equals an int is read as it was written, in a batch or not."""
    half = builder(value_serde=serdes.json)
    table = grouped(half).aggregate(lambda: 0.5, lambda key, value, total: total * 2, name="Table")
    table.to_stream().to("out", value_serde=serdes.json)
    (node_group,) = half.build().groups
    rows: list[Row] = [(b"a", b"x", number, None) for number in range(6)]
    assert results(node_group, rows, 6) == results(node_group, rows, 1)


@pytest.mark.parametrize("shape", ["", "tumbling"])
def test_a_value_that_the_store_cannot_have_rejects_its_record_alone(shape: str) -> None:
    def odd(key: str, value: str, found: list[Any]) -> list[Any]:
        return [object()] if value == "bad" else [*found, value]

    node_group = group(
        lambda grouped: grouped.aggregate(list, odd, name="Table"),
        shape,
        "on_update",
        late=False,
        old=False,
    )
    nodes = Nodes(node_group)
    rows: list[Row] = [(b"a", v, n, None) for n, v in enumerate([b"1", b"2", b"bad", b"3", b"4"])]
    (rejection,) = nodes.process(batch_of(rows, 0))
    assert rejection.index == 2
    assert 'aggregate "Table": give it key_serde or value_serde' in str(rejection.error)
    values = [json.loads(row[2]) for output in nodes.runtime.outputs for row in expanded(output)]
    assert values == [["1"], ["1", "2"], ["1", "2", "3"], ["1", "2", "3", "4"]]


def test_a_window_in_which_nothing_closes_is_not_looked_for_again() -> None:
    node_group = group(AGGREGATES["count"], "tumbling", "on_close", late=False, old=False)
    nodes = Nodes(node_group)
    scans = []
    store = nodes.stores["Table"]
    scan = store.scan
    store.scan = lambda *given: scans.append(given) or scan(*given)  # type: ignore[method-assign, func-returns-value]
    rows: list[Row] = [(b"a", b"x", 1_000 + number, None) for number in range(18)]
    for start in range(18):
        nodes.process(batch_of(rows[start : start + 1], start))
    assert len(scans) <= 1

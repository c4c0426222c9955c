"""With caching, a table forwards the newest update of each key in a batch; no more changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_pipeline import Record, StreamsBuilder, serdes, windows
from kafka_pipeline.streams.dsl.table import Table
from kafka_pipeline.testing import TopologyTestDriver
from tests.tiers import long_but_the_first
from tests.unit.streams.dsl.running import builder, outputs

Rows = list[tuple[str, str | None]]

BATCHES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "2", "3", None])), max_size=12
    ),
    max_size=4,
)


def written(built: StreamsBuilder, batches: Sequence[Rows]) -> list[Rows]:
    """Return what a topology writes for each batch that it reads, as keys and values."""
    found = list[Rows]()
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.string)
        results = driver.create_output_topic("out", serdes.string, serdes.string)
        for number, rows in enumerate(batches):
            topic.pipe_batch([Record(key, value, number) for key, value in rows])
            found.append([(each.key, each.value) for each in results.read_records()])
    return found


def _table(built: StreamsBuilder) -> None:
    built.table("in", name="Table").to_stream().to("out")


def _counts(built: StreamsBuilder) -> None:
    counts = built.stream("in", name="In").group_by_key(name="ByKey").count(name="Counts")
    counts.map_values(str, name="Text").to_stream().to("out")


def _in_windows(built: StreamsBuilder) -> None:
    grouped = built.stream("in", name="In").group_by_key(name="ByKey")
    counts = grouped.windowed_by(windows.tumbling(2, grace_ms=9)).count(name="Counts")
    counts.to_stream().map(lambda at, n: (f"{at.key}@{at.window.start}", str(n))).to("out")


def _sums_of_groups(built: StreamsBuilder) -> None:
    """Sums over a table, which take the old value of each change out of its group."""
    table: Table[str, str] = built.table("in", name="Table")
    grouped = table.group_by(lambda key, value: (value, key), name="ByValue")
    keys = grouped.aggregate(
        str,
        lambda group, key, kept: "".join(sorted(kept + key)),
        lambda group, key, kept: kept.replace(key, "", 1),
        name="Keys",
    )
    keys.to_stream().to("out")


def _join(built: StreamsBuilder) -> None:
    table: Table[str, str] = built.table("in", name="Table")
    doubled = table.map_values(lambda value: value * 2, name="Doubled")
    table.join(doubled, lambda one, two: f"{one},{two}", name="Both").to_stream().to("out")


@pytest.mark.parametrize(
    "add", long_but_the_first([_table, _counts, _in_windows, _sums_of_groups, _join], 3)
)
@given(batches=BATCHES)
@settings(max_examples=60, deadline=None)
def test_the_last_result_of_each_key_is_that_without_caching(
    add: Callable[[StreamsBuilder], None], batches: list[Rows]
) -> None:
    each, newest = builder(), builder(caching=True)
    add(each)
    add(newest)
    without, within = written(each, batches), written(newest, batches)
    state: dict[str, str | None] = {}
    for all_of_batch, kept in zip(without, within, strict=True):
        before = {**state}
        state |= all_of_batch
        after = {**before, **dict(kept)}
        # A row that comes and goes within the batch may be left out.
        assert {k: v for k, v in after.items() if v} == {k: v for k, v in state.items() if v}
        assert len(kept) <= len(all_of_batch)


def test_updates_of_one_batch_become_one_and_those_of_two_stay_two() -> None:
    built = builder(caching=True)
    _counts(built)
    rows: Rows = [("a", "x"), ("b", "x"), ("a", "x"), ("a", "x"), ("a", "x")]
    assert written(built, [rows, rows]) == [[("b", "1"), ("a", "4")], [("b", "2"), ("a", "8")]]


def test_without_caching_each_update_is_forwarded() -> None:
    built = builder()
    _counts(built)
    rows: Rows = [("a", "x")] * 5
    assert written(built, [rows]) == [[("a", str(count)) for count in range(1, 6)]]


def test_the_old_value_is_that_from_before_the_batch() -> None:
    built = builder(caching=True)
    _sums_of_groups(built)
    first: Rows = [("a", "1")]
    # The group 2 is never seen.
    moves: Rows = [("a", "2"), ("a", "3"), ("a", "3"), ("a", "3"), ("a", "3")]
    assert written(built, [first, moves]) == [[("1", "a")], [("1", ""), ("3", "a")]]


def test_a_row_that_comes_and_goes_in_a_batch_is_left_out_where_old_values_are_known() -> None:
    built = builder(caching=True)
    _sums_of_groups(built)
    rows: Rows = [("a", "1"), ("a", None), ("a", "2"), ("a", "3"), ("a", None)]
    assert written(built, [rows]) == [[]]


def test_a_deletion_is_forwarded_where_old_values_are_not_known() -> None:
    built = builder(caching=True)
    _table(built)
    rows: Rows = [("a", "1"), ("a", None), ("a", "2"), ("a", "3"), ("a", None)]
    assert written(built, [rows]) == [[("a", None)]]


def test_keys_are_the_same_if_their_bytes_are() -> None:
    built = StreamsBuilder(key_serde=serdes.json, value_serde=serdes.string, caching=True)
    built.table("in", name="Table").to_stream().to("out")
    keys = [1, True, {"a": 1}, {"a": 1}, 1]
    with TopologyTestDriver(built) as driver:
        topic = driver.create_input_topic("in", serdes.json, serdes.string)
        topic.pipe_batch([Record(key, str(at), 0) for at, key in enumerate(keys)])
        found = outputs(driver, "out", serdes.json)
    assert [(key, value) for key, value, _ in found] == [(True, "1"), ({"a": 1}, "3"), (1, "4")]


def test_versions_of_a_table_with_a_history_are_all_forwarded() -> None:
    built = builder(caching=True)
    built.table("in", name="Table", history_retention_ms=1_000).to_stream().to("out")
    rows: Rows = [("a", str(number)) for number in range(5)]
    assert written(built, [rows]) == [rows]

"""What tasks keep of tables that follow topics, and give to queries; without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline import Record, TopologyBuilder, serdes, stores
from kafka_pipeline.common.pipelines.specs import Format
from kafka_pipeline.streams.dsl.global_table import GlobalFiller
from kafka_pipeline.streams.sql.processor import SparkProcessor
from kafka_pipeline.streams.sql.spec import QuerySpec
from kafka_pipeline.streams.sql.topic_tables import TopicTable
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.testing import TopologyTestDriver

STORE = stores.timestamped_key_value("table-t", serdes.bytes, serdes.bytes)


HISTORY = stores.versioned_key_value(
    "table-t-history", serdes.bytes, serdes.bytes, history_retention_ms=100
)


class Noting:
    """A query that gives nothing, and notes the rows of tables that it gets."""

    columns = ("timestamp",)
    fields = split = None

    def __init__(self) -> None:
        self.lookups: list[Mapping[str, Any]] = []
        self.replaced: list[tuple[str, Any]] = []

    def open(self, spec: QuerySpec) -> Noting:
        return self

    def run(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        self.lookups.append({name: rows_of(rows) for name, rows in lookups.items()})
        return pa.table({"value": pa.array([], pa.binary()), "timestamp": pa.array([], pa.int64())})

    def parts(self, table: pa.Table, lookups: Mapping[str, pa.Table] = {}) -> pa.Table:
        raise AssertionError("its results are whole")

    def replace(self, name: str, rows: pa.Table) -> None:
        self.replaced.append((name, rows_of(rows)))

    def close(self) -> None:
        """Nothing to release."""


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows, with times in ms."""
    columns = [
        [None if time is None else time // 1000 for time in column.cast(pa.int64()).to_pylist()]
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def driver_of(
    query: Noting, spec: QuerySpec, *, is_global: bool, store: StoreBuilder[Any, Any] = STORE
) -> TopologyTestDriver:
    builder = TopologyBuilder()
    builder.add_source("In", "in")
    builder.add_processor("P", lambda: SparkProcessor(spec, query.open), "In")
    if is_global:
        filler = partial(GlobalFiller, STORE.name)
        builder.add_global_store(STORE, "Rows", "rows", "Fill", filler)
    else:
        builder.add_source("Rows", "rows")
        history_ms = 100 if store is HISTORY else None
        fill = partial(TopicTable, store.name, spec.format, "", history_ms)
        builder.add_processor("Fill", fill, "Rows")
        builder.add_state_store(store, ["P", "Fill"])
    return TopologyTestDriver(builder)


def test_a_batch_gets_the_rows_of_its_keys_once() -> None:
    query = Noting()
    with driver_of(query, QuerySpec(topic_tables={"t": ""}), is_global=False) as driver:
        rows, records = driver.create_input_topic("rows"), driver.create_input_topic("in")
        for key, value, at in ((b"a", b"1", 5), (b"b", b"2", 6), (b"a", b"3", 7), (None, b"4", 8)):
            rows.pipe_input(key, value, timestamp=at)
        records.pipe_input(b"a", b"", timestamp=9)
        records.pipe_input(b"c", b"", timestamp=9)
        records.pipe_input(None, b"", timestamp=9)
        rows.pipe_input(b"a", None, timestamp=10)
        records.pipe_input(b"a", b"", timestamp=11)
        assert driver.dropped_records == {"null key": 1}
    assert query.lookups == [{"t": [("a", "3", 7)]}, {"t": []}, {"t": []}, {"t": []}]
    assert query.replaced == []


def test_a_batch_gets_the_versions_that_its_records_may_see() -> None:
    query = Noting()
    spec = QuerySpec(topic_tables={"t": ""}, versioned_tables=("t",))
    with driver_of(query, spec, is_global=False, store=HISTORY) as driver:
        rows, records = driver.create_input_topic("rows"), driver.create_input_topic("in")
        changes = (
            (b"b", b"4", 10),
            (b"a", b"1", 50),
            (b"a", b"2", 120),
            (b"a", None, 130),
            (b"a", b"3", 150),
            # The history begins at 60 from here on.
            (b"c", b"5", 160),
            (b"a", b"late", 110),
            (b"a", b"too late", 59),
            (None, b"6", 160),
        )
        for key, value, at in changes:
            rows.pipe_input(key, value, timestamp=at)
        assert driver.dropped_records == {"expired": 1, "null key": 1}

        def seen(*asked: tuple[bytes | None, int]) -> list[tuple[Any, ...]]:
            query.lookups.clear()
            records.pipe_batch([Record(key, b"", at) for key, at in asked])
            (found,) = query.lookups
            return list(found["t"])

        assert seen((b"a", 150), (None, 1)) == [("a", "3", 150, 150, None)]
        assert seen((b"a", 149), (b"a", 100)) == [
            ("a", "1", 50, 60, 110),
            ("a", "late", 110, 110, 120),
            ("a", "2", 120, 120, 130),
        ]
        assert seen((b"a", 59)) == seen((b"a", 130)) == seen((b"d", 500)) == []
        # The latest version has no end, and is there before the history too.
        assert seen((b"b", 10), (b"c", 159)) == [("b", "4", 10, 10, None)]
        assert seen((b"b", 9)) == []
        assert seen((b"c", 999), (b"a", 115)) == [
            ("c", "5", 160, 160, None),
            ("a", "late", 110, 110, 120),
        ]


def test_a_global_table_is_given_as_a_whole_when_it_has_changed() -> None:
    query = Noting()
    with driver_of(query, QuerySpec(global_tables={"t": "n INT"}), is_global=True) as driver:
        rows, records = driver.create_input_topic("rows"), driver.create_input_topic("in")
        records.pipe_input(b"a", b"", timestamp=1)
        records.pipe_input(b"a", b"", timestamp=2)
        assert query.replaced == [("t", [])]
        rows.pipe_input(b"a", b'{"n": 1}', timestamp=3)
        for wrong in (b"{", b"5", b"\xff"):
            rows.pipe_input(b"b%d" % wrong[0], wrong, timestamp=4)
        rows.pipe_input(b"\xff", b"{}", timestamp=4)
        records.pipe_input(b"a", b"", timestamp=5)
        records.pipe_input(b"z", b"", timestamp=6)
        assert query.replaced[1:] == [("t", [("a", '{"n": 1}', 3)])]
        rows.pipe_input(b"a", None, timestamp=7)
        records.pipe_input(b"a", b"", timestamp=8)
        assert query.replaced[2:] == [("t", [])]
    assert query.lookups == [{}] * 5


@pytest.mark.parametrize(
    ("format_", "schema", "key", "value", "problem"),
    [
        ("string", "", b"\xff", b"v", "the key is not UTF-8"),
        ("string", "", b"k", b"\xff", "the value is not UTF-8"),
        ("json", "n INT", b"k", b"[1]", "the value is not a JSON object"),
        ("json", "n DECIMAL(9, 2)", b"k", b'{"n": "1e99999"}', "a number for a DECIMAL has"),
        ("binary", "n INT", b"\xff", b"\xff", "the value is not UTF-8"),
        ("binary", "n INT", b"\xff", b"{", "the value is not a JSON object"),
        ("binary", "", b"\xff", b"\xff", ""),
        ("json", "", b"k", b"no JSON", ""),
        ("json", "n INT", b"k", None, ""),
    ],
)
@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("kept", [STORE, HISTORY], ids=["latest", "history"])
def test_records_that_spark_cannot_read_are_rejected(
    format_: Format,
    schema: str,
    key: bytes,
    value: bytes | None,
    problem: str,
    size: int,
    kept: StoreBuilder[Any, Any],
) -> None:
    builder = TopologyBuilder().add_source("Rows", "rows")
    history_ms = 100 if kept is HISTORY else None
    fill = partial(TopicTable, kept.name, format_, schema, history_ms)
    builder.add_processor("Fill", fill, "Rows")
    builder.add_state_store(kept, ["Fill"])
    with TopologyTestDriver(builder) as driver:
        rows = driver.create_input_topic("rows")
        good = [_record(b"%d" % index, b"{}") for index in range(size - 1)]
        store = driver.get_state_store(kept.name)
        if problem:
            with pytest.raises(Exception, match=problem):
                rows.pipe_batch([*good, _record(key, value)])
        else:
            rows.pipe_batch([*good, _record(key, value)])
            assert (store.get(key) or (None,))[0] == value
        assert all(store.get(each.key)[0] == each.value for each in good)


def _record(key: bytes, value: bytes | None) -> Record:
    return Record(key, value, 5)

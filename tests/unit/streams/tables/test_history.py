"""Tables that processors write, read again as the records of their topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as AnyDeltaTable
from msgspec import structs

from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.pipelines.history import HistorySpec, RecordPart
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.tables.columns import columns_of
from kafka_pipeline.streams.tables.delta import DeltaTable
from kafka_pipeline.streams.tables.history import History
from kafka_pipeline.streams.tables.iceberg import IcebergTable
from kafka_pipeline.streams.tables.parquet import ParquetTable
from kafka_pipeline.streams.tables.rows import RowReader
from kafka_pipeline.streams.tables.table import Table
from tests.object_store.server import BUCKET, ObjectStore
from tests.rest_catalog.server import RestCatalog

COLUMNS: dict[RecordPart, str] = {"key": "k", "timestamp": "at", "partition": "p", "offset": "o"}
DDL = "n BIGINT, price DECIMAL(10, 2), tags ARRAY<STRING>, m MAP<STRING, INT>, day DATE, b BINARY"
VALUE = {"price": 1.1, "tags": ["a"], "m": {"x": 1}, "day": "2026-03-01", "b": "eHg="}
NOTHING = dict.fromkeys(["price", "tags", "m", "day", "b"])


@dataclass
class Lake:
    """A table of one format, written by the tasks of `shop/Orders` from a topic with the id 7."""

    sink: TableSinkSpec
    make: Callable[..., Table]

    def write(
        self,
        offsets: Sequence[int],
        position: int,
        partition: int = 0,
        *,
        writer: str = "shop/Orders",
        id_: str = "7",
        ddl: str = DDL,
    ) -> None:
        """Commit rows with these offsets, and a position."""
        columns = columns_of(ddl, COLUMNS)
        spec = structs.replace(self.sink, schema=ddl, evolve="add")
        task = self.make(spec, columns, f"{writer}/orders/{id_}/{partition}")
        values = [json.dumps({"n": n, **VALUE}).encode() for n in offsets]
        keys = [None if n % 5 == 0 else b"k%d" % n for n in offsets]
        times = [1_000 + n for n in offsets]
        rows, wrong = RowReader(columns, partition).read(
            Batch(keys=keys, values=values, timestamps=times, offsets=[*offsets])
        )
        assert not wrong
        task.write([rows], position, task.position())

    def history(self, partition: int = 0, id_: str = "7") -> History:
        sink = self.sink
        spec = HistorySpec(
            format=sink.format,  # type: ignore[arg-type]
            path=sink.path,
            catalog=sink.catalog,
            table=sink.table,
            written_by="shop/Orders",
            record_columns=COLUMNS,
        )
        return History(spec, "orders", id_, partition)


def lake_of(format_: str, folder: Path) -> Lake:
    made = {"delta": DeltaTable, "parquet": ParquetTable, "iceberg": IcebergTable}[format_]
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
    place = {"path": str(folder / "t")}
    if format_ == "iceberg":
        place = {"catalog": {**catalog, "name": "default"}, "table": "shop.t"}  # type: ignore[dict-item]
    return Lake(TableSinkSpec(format=format_, schema=DDL, **place), made)  # type: ignore[arg-type]


def lake_in_s3(request: pytest.FixtureRequest, folder: Path) -> Lake:
    """Return a Delta table in S3, or an Iceberg table there, in a REST catalog."""
    store: ObjectStore = request.getfixturevalue("object_store")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in store.environment().items():
        patch.setenv(name, value)
    if request.param == "delta-s3":
        path = f"s3://{BUCKET}/{folder.name}"
        return Lake(TableSinkSpec(format="delta", schema=DDL, path=path), DeltaTable)
    server: RestCatalog = request.getfixturevalue("rest_catalog")
    catalog = {"name": "default", "type": "rest", "uri": server.uri}
    table = f"{folder.name}.t"
    return Lake(
        TableSinkSpec(format="iceberg", schema=DDL, catalog=catalog, table=table), IcebergTable
    )


@pytest.fixture(
    params=[
        *("delta", "iceberg", "parquet"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("delta-s3", "iceberg-s3")),
    ]
)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param.endswith("-s3"):
        return lake_in_s3(request, tmp_path)
    return lake_of(request.param, tmp_path)


@pytest.fixture
def delta(tmp_path: Path) -> Lake:
    return lake_of("delta", tmp_path)


def test_records_are_those_of_the_topic_up_to_the_position_that_is_written_with_them(
    lake: Lake,
) -> None:
    lake.write([0, 1, 3], 5)
    lake.write([5, 6], 7)
    lake.write([0, 1], 2, partition=1)

    history = lake.history()
    lake.write([7, 8], 9)  # by then, the snapshot is taken
    found = history.read(1, 100)

    assert history.end == 7
    assert (found.topic, found.partition) == ("orders", 0)
    assert found.offsets == [1, 3, 5, 6]
    assert found.keys == [b"k1", b"k3", None, b"k6"]
    assert found.timestamps == [1_001, 1_003, 1_005, 1_006]
    assert [json.loads(value or b"") for value in found.values] == [
        {"n": n, **VALUE} for n in found.offsets
    ]
    assert b'"price":1.10' in (found.values[0] or b"")
    assert history.read(3, 6).offsets == [3, 5]
    assert lake.history(partition=1).read(0, 2).offsets == [0, 1]
    assert lake.history().read(0, 100).offsets == [0, 1, 3, 5, 6, 7, 8]


def test_rows_from_before_a_column_was_added_have_null_in_it(lake: Lake) -> None:
    lake.write([0], 1, ddl="n BIGINT")
    lake.write([1], 2)
    old, new = (json.loads(value or b"") for value in lake.history().read(0, 2).values)
    assert old == {"n": 0, **NOTHING}
    assert new == {"n": 1, **VALUE}


def test_a_partition_that_nobody_has_written_ends_at_offset_0(lake: Lake) -> None:
    lake.write([0, 1], 2)
    assert lake.history(partition=3).end == 0


def test_a_table_without_the_place_of_records_is_refused(delta: Lake) -> None:
    columns = columns_of("n BIGINT", {"key": "k"})
    spec = structs.replace(delta.sink, schema="n BIGINT")
    DeltaTable(spec, columns, "shop/Orders/orders/7/0")
    with pytest.raises(NonRetriableError, match='no column "at" for the timestamp of records'):
        delta.history()


def test_the_rows_of_a_topic_that_was_made_again_are_not_mixed_up(delta: Lake) -> None:
    delta.write([0, 1, 2], 3, id_="6")
    with pytest.raises(NonRetriableError, match="from offset 0 on, which shop/Orders/orders/7/0"):
        delta.history()
    delta.write([2, 3], 4)
    with pytest.raises(NonRetriableError, match="offset 2 of orders"):
        delta.history().read(0, 4)


def test_a_table_that_several_processors_write_is_refused(delta: Lake) -> None:
    delta.write([0, 1], 2)
    delta.write([0, 1], 2, writer="shop/Copy")
    with pytest.raises(NonRetriableError, match="offset 0 of orders"):
        delta.history().read(0, 2)


def test_a_delta_table_with_rows_that_were_replaced_is_refused(delta: Lake) -> None:
    delta.write([0, 1], 2)
    table = AnyDeltaTable(delta.sink.path)
    change = pa.table({"n": pa.array([1], pa.int64())})
    merge = table.merge(change, "t.n = c.n", source_alias="c", target_alias="t")
    merge.when_matched_update({"price": "'9.00'"}).execute()
    with pytest.raises(NonRetriableError, match="has replaced rows"):
        delta.history()


def test_a_delta_table_with_other_names_in_its_files_is_refused(delta: Lake) -> None:
    mapped = {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    }
    schema = columns_of(DDL, COLUMNS).schema
    AnyDeltaTable.create(delta.sink.path, schema, configuration=mapped)
    delta.write([0], 1)
    with pytest.raises(NonRetriableError, match=r"has delta\.columnMapping\.mode"):
        delta.history()


def test_files_that_were_compacted_and_deleted_meanwhile_are_found_again_by_the_next_start(
    delta: Lake,
) -> None:
    for n in range(4):
        delta.write([n], n + 1)
    before = delta.history()
    table = AnyDeltaTable(delta.sink.path)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(TransactionFailedError, match="cannot be read"):
        before.read(0, 4)
    found: RecordBatch = delta.history().read(0, 4)

    assert found.offsets == [0, 1, 2, 3]


def test_a_place_without_a_table_is_an_error_that_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TransactionFailedError, match="cannot be read"):
        lake_of("delta", tmp_path).history()


@pytest.mark.parametrize("first", [0, 99_999, 100_000, 1_234_567, 40_000_000])
def test_offsets_without_rows_are_skipped_up_to_the_first_row_or_shortly_before(
    first: int, lake: Lake
) -> None:
    lake.write([first], first + 1)
    history = lake.history()
    start = history.skip_empty(0)
    assert first - 100_000 < start <= first
    assert history.read(start, first + 1).offsets == [first]
    assert history.skip_empty(first) == first


def test_without_rows_all_offsets_are_skipped(lake: Lake) -> None:
    lake.write([0], 5_000_000)
    assert lake.history().skip_empty(1) == 5_000_000

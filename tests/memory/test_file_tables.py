"""What is particular to tables of files: their readers, other writers, types and partitions."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import DayTransform, TruncateTransform

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    TransactionFailedError,
)
from kafka_pipeline.common.pipelines.specs import TableSinkSpec
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.tables.iceberg import POSITION
from tests.memory.table_jobs import (
    FILES,
    INPUT,
    DeltaJob,
    FileJob,
    IcebergJob,
    ParquetJob,
    StoppedError,
    before_commit,
)
from tests.postgres import USER, Database


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergJob:
    return IcebergJob(tmp_path)


@pytest.fixture
def delta(tmp_path: Path) -> DeltaJob:
    return DeltaJob(tmp_path)


@pytest.fixture(params=FILES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileJob:
    return FILES[request.param](tmp_path)


@pytest.mark.parametrize("make", [DeltaJob, IcebergJob])
def test_rows_that_a_restore_of_the_table_takes_away_are_not_written_again(
    tmp_path: Path, make: type[DeltaJob | IcebergJob]
) -> None:
    job = make(tmp_path)
    for number in (1, 2, 3):
        job.write(number)
        job.run()
    job.restore()
    assert job.position == 3  # it keeps the transactions, and the properties
    job.write(4)
    job.run()
    assert job.rows() == [(0, 1), (3, 4)]


def test_the_position_outlives_the_snapshots(iceberg: IcebergJob) -> None:
    for number in (1, 2, 3):
        iceberg.write(number)
        iceberg.run()
    table = iceberg.table
    summary = table.snapshots()[-1].summary
    assert summary is not None
    assert summary[f"{POSITION}{iceberg.application}"] == "3"
    with table.transaction() as by_others:
        by_others.overwrite(table.scan().to_arrow())
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.snapshots()[:-1]]
    ).commit()
    assert [POSITION in str(each.summary) for each in iceberg.table.snapshots()] == [False]
    iceberg.broker.forget(iceberg.group)
    iceberg.write(4)
    iceberg.run()
    assert iceberg.rows() == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_catalog_may_be_in_postgresql(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = IcebergJob(tmp_path, uri=database.url)
    job.write(1)
    job.run()
    job.write(2)
    owner = job.started()
    other = replace(job.replica, task=TaskId("Q", 0))
    before_commit(job, partial(job.run, other), monkeypatch)
    owner.commit()
    owner.drop()
    assert job.rows() == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert job.position == 2
    spec = job.replica.spec
    assert isinstance(spec, TableSinkSpec)
    uri = spec.catalog["uri"].replace("correct", "wrong")
    with pytest.raises(TransactionFailedError, match=USER) as caught:
        job.owner(job.changed(catalog={**spec.catalog, "uri": uri})).start()
    assert caught.value.shown == "table shop.orders: OperationalError"


def test_rows_are_written_into_a_table_that_others_partitioned(iceberg: IcebergJob) -> None:
    schema = pa.schema(
        [
            pa.field("n", pa.int64()),
            pa.field("day", pa.timestamp("us", "UTC")),
            pa.field("at", pa.int64(), nullable=False),
        ]
    )
    iceberg.folder.mkdir()
    iceberg.catalog.create_namespace("shop")
    table = iceberg.catalog.create_table("shop.orders", schema)
    with table.update_spec() as spec:
        spec.add_field("day", DayTransform())
    assert "n" in iceberg.refusal(iceberg.changed(partition_by=("n",)))
    iceberg.replica = iceberg.changed(schema="n BIGINT, day TIMESTAMP")
    for day in ("01", "02", "02"):
        iceberg.write(b'{"n": 1, "day": "2026-03-%sT10:00:00Z"}' % day.encode())
    iceberg.run()
    assert len(iceberg.rows()) == 3
    assert len([*iceberg.table.scan().plan_files()]) == 2


def test_values_that_partitions_cannot_have_are_dead_letters(iceberg: IcebergJob) -> None:
    """PyIceberg refuses the whole commit, which began again without end."""
    schema = pa.schema(
        [
            pa.field("n", pa.decimal128(38, 2)),
            pa.field("p", pa.string()),
            pa.field("at", pa.int64(), nullable=False),
        ]
    )
    iceberg.folder.mkdir()
    iceberg.catalog.create_namespace("shop")
    table = iceberg.catalog.create_table("shop.orders", schema)
    with table.update_spec() as spec:
        spec.add_field("n", TruncateTransform(100))
        spec.add_identity("p")
    iceberg.replica = iceberg.changed(schema="n DECIMAL(38, 2), p STRING")
    nines = "9" * 36
    fits = [f"-{nines}.00", f"{nines}.99", "-0.01", None]
    values = [{"n": each, "p": "x"} for each in (*fits, f"-{nines}.01")] + [{"p": "é" * 43}]
    iceberg.write(*(json.dumps(each).encode() for each in values))
    iceberg.run()
    assert iceberg.letters == [json.dumps(each).encode() for each in values[4:]]
    assert [at for (at,) in iceberg.select("at")] == [0, 1, 2, 3]


@pytest.mark.parametrize("make", [DeltaJob, ParquetJob])
def test_the_copy_of_an_older_table_is_refused_and_filled_after_a_reset(
    tmp_path: Path, make: type[DeltaJob | ParquetJob]
) -> None:
    job = make(tmp_path)
    job.write(1)
    job.run()
    shutil.copytree(job.path, tmp_path / "copy")
    job.write(2, 3)
    job.run()
    shutil.rmtree(job.path)
    shutil.move(tmp_path / "copy", job.path)
    reason = job.refusal()
    assert "the table has only those before offset 1" in reason
    job.broker.set_committed(job.group, {INPUT: Committed(1)})
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3)]


def test_readers_see_only_whole_files_of_parquet_and_half_ones_are_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ParquetJob(tmp_path)
    job.write(1, 2)
    job.run()
    job.write(3)

    def stop(*args: Any, **kwargs: Any) -> None:
        raise StoppedError

    def half(_table: object, path: Path) -> None:
        path.write_bytes(b"PAR1")
        raise StoppedError

    for module, name, end in ((pq, "write_table", half), (os, "link", stop)):
        owner = job.started()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, end)
            patch.setattr(Path, "unlink", stop)  # it ends before it could tidy up
            with pytest.raises(StoppedError):
                owner.commit()
        owner.drop()
        assert len([*job.path.glob(".*")]) == 1  # and its successor does so
        assert job.rows() == [(0, 1), (1, 2)]
        assert pd.read_parquet(job.path)["n"].tolist() == [1, 2]
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3)]
    assert [file.suffix for file in job.path.iterdir()] == [".parquet"] * 2


def test_a_file_that_begins_where_one_of_another_owner_does_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ParquetJob(tmp_path)
    job.write(1, 2)
    old = job.started()
    write = pq.write_table

    def late(*args: Any) -> None:
        monkeypatch.setattr(pq, "write_table", write)
        job.run()
        write(*args)

    monkeypatch.setattr(pq, "write_table", late)
    with pytest.raises(FencedError, match="its position is 2, not None"):
        old.commit()
    old.drop()
    assert job.rows() == [(0, 1), (1, 2)]


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*args: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    job = ParquetJob(tmp_path)
    job.write(1)
    owner = job.started()
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        with pytest.raises(NonRetriableError, match="its file system has no hard links"):
            owner.commit()
    owner.drop()
    assert [*job.path.iterdir()] == []


@pytest.mark.parametrize("make", [DeltaJob, IcebergJob])
def test_a_table_with_other_partitions_is_refused(
    tmp_path: Path, make: type[DeltaJob | IcebergJob]
) -> None:
    job = make(tmp_path)
    job.write(1)
    job.run()
    reason = job.refusal(job.changed(partition_by=("n",)))
    assert "is partitioned by [], not by ['n']" in reason


def test_a_violated_constraint_fails_the_task_without_the_value(delta: DeltaJob) -> None:
    delta.write(1)
    delta.run()
    delta.table.alter.add_constraint({"few": "n < 4111"})
    delta.write(4111)
    owner = delta.started()
    with pytest.raises(NonRetriableError, match="refuses rows") as caught:
        owner.commit()
    owner.drop()
    assert "4111" not in str(caught.value)
    assert delta.position == 1


def test_upserts_into_a_table_that_only_grows_are_refused(delta: DeltaJob) -> None:
    delta.write(1)
    delta.run(delta.changed(schema="n BIGINT NOT NULL"))
    delta.table.alter.set_table_properties({"delta.appendOnly": "true"})
    upserts = delta.changed(schema="n BIGINT NOT NULL", mode="upsert", key=("n",))
    assert "has delta.appendOnly, so no rows are replaced" in delta.refusal(upserts)


def test_a_table_that_forgets_offsets_is_refused(delta: DeltaJob) -> None:
    delta.write(1)
    delta.run()
    retention = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    delta.table.alter.set_table_properties(retention)
    assert "by which it forgets the offsets of tasks: unset it" in delta.refusal()


def test_a_table_that_deltalake_cannot_write_fails_the_task(delta: DeltaJob) -> None:
    delta.write(1)
    owner = delta.started()
    log = delta.path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (protocol,) = (action["protocol"] for action in actions if "protocol" in action)
    protocol |= {"minWriterVersion": 7, "writerFeatures": ["domainMetadata", "rowTracking"]}
    log.write_text("\n".join(map(json.dumps, actions)))
    owner.drop()
    owner = delta.started()
    with pytest.raises(NonRetriableError, match=r"cannot write it: .*RowTracking"):
        owner.commit()
    owner.drop()


def test_a_table_in_a_format_that_pyiceberg_cannot_write_is_refused(iceberg: IcebergJob) -> None:
    iceberg.write(1)
    iceberg.run()
    file = Path(iceberg.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    for snapshot in metadata["snapshots"]:
        snapshot |= {"first-row-id": 0, "added-rows": 1}
    file.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 1}))
    assert "has version 3 of Iceberg's format" in iceberg.refusal()


def test_partitions_that_get_rows_twice_are_refused(iceberg: IcebergJob) -> None:
    iceberg.folder.mkdir()
    iceberg.catalog.create_namespace("shop")
    fields = [("n", pa.float64(), True), ("at", pa.int64(), False)]
    schema = pa.schema([pa.field(name, type_, null) for name, type_, null in fields])
    table = iceberg.catalog.create_table("shop.orders", schema)
    with table.update_spec() as spec:
        spec.add_identity("n")
    assert 'column "n" is a FLOAT or DOUBLE' in iceberg.refusal(iceberg.changed(schema="n DOUBLE"))


@pytest.mark.parametrize("make", [DeltaJob, IcebergJob])
def test_a_value_whose_folder_cannot_be_made_is_a_dead_letter(
    tmp_path: Path, make: type[DeltaJob | IcebergJob]
) -> None:
    job = make(tmp_path, "p STRING, q DATE", partition_by=("q", "p"))
    long, fits = "é" * 43, ["", "__HIVE_DEFAULT_PARTITION__", "a/b=%2F é", "é" * 42, None]
    job.write(*(json.dumps({"p": text}).encode() for text in (long, *fits)))
    job.run()
    lost: list[Any] = fits[:2] if make is DeltaJob else []
    assert job.letters == [json.dumps({"p": text}).encode() for text in (long, *lost)]
    wanted = [(at, text) for at, text in enumerate(fits, 1) if text not in lost]
    assert job.select("at", "p") == wanted


def test_a_place_that_is_not_allowed_is_refused_where_the_task_runs(delta: DeltaJob) -> None:
    reason = delta.refusal(delta.changed(path="elsewhere"))
    assert 'path "elsewhere" is outside of what config.yaml allows' in reason


def test_values_of_all_types_are_read_back_as_they_were_written(
    tmp_path: Path, files: FileJob
) -> None:
    values = {
        "a": ("TINYINT", b"-128", -128),
        "b": ("SMALLINT", b"32767", 32767),
        "c": ("BIGINT NOT NULL", b"9007199254740993", 9007199254740993),
        "d": ("FLOAT", b"0.5", 0.5),
        "e": ("DECIMAL(38, 2)", b'"123456789012345678901234567890123456.10"', None),
        "f": ("STRING", '"é\\u0000"'.encode(), "é\0"),
        "g": ("BINARY", b'"AP8="', b"\0\xff"),
        "h": ("BOOLEAN", b"true", True),
        "i": ("DATE", b'"0001-02-28"', date(1, 2, 28)),
        "j": (
            "TIMESTAMP",
            b'"2026-01-01T01:00:00.000001+01:00"',
            datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
        ),
        "k": (
            "TIMESTAMP_NTZ",
            b'"2026-01-01T01:00:00.000001"',
            datetime(2026, 1, 1, 1, 0, 0, 1),
        ),
        "l": ("ARRAY<TINYINT>", b"[1, null]", [1, None]),
        "m": ("MAP<STRING, DATE>", b'{"x": null}', [("x", None)]),
        "o": (
            "STRUCT<x: SMALLINT NOT NULL, y: ARRAY<STRUCT<z: STRING>>>",
            b'{"x": 1, "y": [{"z": "v"}]}',
            {"x": 1, "y": [{"z": "v"}]},
        ),
    }
    exact = Decimal("123456789012345678901234567890123456.10")
    schema = ", ".join(f"{name} {type_}" for name, (type_, *_) in values.items())
    files.replica = files.changed(schema=schema, partition_by=("h",))
    text = b", ".join(b'"%s": %s' % (name.encode(), text) for name, (_, text, _) in values.items())
    files.write(b"{%s}" % text, b'{"c": 1}', b'{"c": 1, "e": 0.001}')
    files.run()
    full, empty = files.select("c", *values)[::-1]
    found = dict(zip(values, full[1:], strict=True))
    assert found == {name: exact if name == "e" else each for name, (*_, each) in values.items()}
    assert empty == (1, None, None, 1, *[None] * (len(values) - 3))
    assert files.letters == [b'{"c": 1, "e": 0.001}']
    files.run()  # a table that is there has the same columns

"""A task that writes a table, on brokers in memory: stopped at each step, and taken over."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import FencedError, TransactionFailedError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.tables import processor
from kafka_pipeline.streams.tables.iceberg import POSITION
from tests.memory.table_jobs import (
    INPUT,
    DeltaJob,
    IcebergJob,
    Job,
    PostgresJob,
    StoppedError,
    stop_at,
)
from tests.postgres import Database

FileJob = DeltaJob | IcebergJob
FILES: dict[str, type[FileJob]] = {"delta": DeltaJob, "iceberg": IcebergJob}
"""The formats of files."""


@pytest.fixture(params=[*FILES, "postgres"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    if request.param in FILES:
        return FILES[request.param](tmp_path)
    return PostgresJob(tmp_path, request.getfixturevalue("database"))


@pytest.fixture(params=FILES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileJob:
    return FILES[request.param](tmp_path)


@pytest.fixture
def delta(tmp_path: Path) -> DeltaJob:
    return DeltaJob(tmp_path)


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergJob:
    return IcebergJob(tmp_path)


def before_commit(job: FileJob, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something once between the look at the position and the commit of a table."""
    commit = getattr(*job.commit)

    def delayed(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(*job.commit, commit)
        act()
        return commit(*args, **kwargs)

    monkeypatch.setattr(*job.commit, delayed)


def test_rows_and_the_offset_after_them_are_in_one_commit_before_that_of_kafka(job: Job) -> None:
    job.write(1, 2, 3)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3)]
    assert job.position == job.committed == 3
    job.write(4)
    job.run()
    assert job.rows()[-1] == (3, 4)


@pytest.mark.parametrize("point", ["before-write", "after-write", "before-produce", "after-commit"])
def test_each_record_is_a_row_or_a_dead_letter_once_wherever_the_process_ends(
    job: Job, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write(1, b"poison", 2)
    job.run()
    job.write(3, b"more poison", 4)
    owner = job.started()
    with monkeypatch.context() as patch:
        stop_at(point, patch)
        with pytest.raises(StoppedError):
            owner.commit()
    owner.drop()
    assert job.position == (3 if point == "before-write" else 6)
    assert job.committed == (6 if point == "after-commit" else 3)
    job.write(5)
    job.run()
    assert [n for _, n in job.rows()] == [1, 2, 3, 4, 5]
    assert job.letters == [b"poison", b"more poison"]
    assert job.position == job.committed == 7


def test_a_record_that_is_in_the_table_is_left_out_even_if_more_follow_in_its_batch(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write(1, 2)
    owner = job.started()
    with monkeypatch.context() as patch:
        stop_at("after-write", patch)
        with pytest.raises(StoppedError):
            owner.commit()
    owner.drop()
    assert job.committed is None
    job.write(3)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3)]


def test_an_old_owner_that_commits_late_is_refused_and_adds_nothing(job: Job) -> None:
    job.write(1, 2)
    old = job.started()
    job.run()
    with pytest.raises(FencedError, match="another owner of the task has committed"):
        old.commit()
    old.drop()
    assert job.rows() == [(0, 1), (1, 2)]


def test_a_new_owner_goes_on_after_an_old_one_whose_commit_overtakes_it(job: Job) -> None:
    job.write(1, 2)
    old = job.started()
    new = job.started()
    with pytest.raises(FencedError):
        old.commit()  # to the table, and then Kafka refuses it
    assert job.rows() == [(0, 1), (1, 2)]
    with pytest.raises(FencedError, match="its position is 2, not None"):
        new.commit()
    old.drop()
    new.drop()
    job.write(3)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3)]


def test_a_commit_between_the_look_and_the_commit_is_refused_by_the_table(
    files: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(1, 2)
    old = files.started()
    before_commit(files, files.run, monkeypatch)
    with pytest.raises(FencedError):
        old.commit()
    old.drop()
    assert files.rows() == [(0, 1), (1, 2)]


def test_a_commit_of_another_task_before_the_commit_makes_it_begin_again(
    files: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(1, b"poison", 2)
    owner = files.started()
    other = replace(files.replica, task=TaskId("Q", 0))
    before_commit(files, partial(files.run, other), monkeypatch)
    owner.commit()
    owner.drop()
    assert files.rows() == [(0, 1), (0, 1), (2, 2), (2, 2)]
    assert files.position == files.committed == 3


def test_an_old_owner_is_refused_although_another_task_has_committed_since(
    files: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(1)
    files.run()
    files.write(2)
    old = files.started()

    def others() -> None:
        files.run(replace(files.replica, task=TaskId("Q", 0)))
        files.run()

    before_commit(files, others, monkeypatch)
    with pytest.raises(FencedError):
        old.commit()
    old.drop()
    assert files.rows() == [(0, 1), (0, 1), (1, 2), (1, 2)]


def test_a_commit_whose_outcome_is_unknown_is_not_repeated(
    files: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(1, 2)
    owner = files.started()
    commit = getattr(*files.commit)

    def without_answer(*args: Any, **kwargs: Any) -> None:
        commit(*args, **kwargs)
        raise OSError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(*files.commit, without_answer)
        with pytest.raises(TransactionFailedError, match="no answer"):
            owner.commit()
    owner.drop()
    files.run()
    assert files.rows() == [(0, 1), (1, 2)]
    assert files.committed == 2


def test_positions_move_even_if_no_record_gives_a_row(job: Job) -> None:
    job.write(b"poison")
    job.run()
    assert job.position == job.committed == 1
    job.write(1)
    job.run()
    assert job.rows() == [(1, 1)]


def test_records_before_one_that_fails_are_in_the_table(job: Job) -> None:
    job.replica = replace(job.replica, on_error=OnError.FAIL, dead_letter_topic=None)
    job.write(1, 2, b"poison", 3)
    owner = job.owner()
    owner.start()
    with pytest.raises(ProcessingFailedError):
        owner.drain()
    owner.commit()
    owner.drop()
    assert job.rows() == [(0, 1), (1, 2)]
    assert job.position == job.committed == 2


def test_a_group_that_is_set_back_repeats_no_row(job: Job) -> None:
    job.write(1, 2, 3)
    job.run()
    job.broker.set_committed(job.group, {INPUT: Committed(0)})
    job.write(4)
    job.run()
    assert job.rows() == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_group_that_lost_its_offsets_repeats_no_row(job: Job) -> None:
    job.write(1, 2)
    job.run()
    job.broker.forget(job.group)
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def test_rows_that_a_restore_of_the_table_takes_away_are_not_written_again(files: FileJob) -> None:
    for number in (1, 2, 3):
        files.write(number)
        files.run()
    files.restore()
    assert files.position == 3  # it keeps the transactions, and the properties
    files.write(4)
    files.run()
    assert files.rows() == [(0, 1), (3, 4)]


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


def test_a_table_that_was_replaced_is_refused_and_filled_after_a_reset(job: Job) -> None:
    job.write(1, 2)
    job.run()
    job.delete()
    reason = job.refusal()
    assert "of the records of in[0], the table has none, and the task goes on at offset 2" in reason
    assert "pipeline reset` with --to-offset 0" in reason
    assert f'"{job.application}"' in reason
    job.broker.set_committed(job.group, {INPUT: Committed(0)})
    job.run()
    assert job.rows() == [(0, 1), (1, 2)]


def test_the_copy_of_an_older_table_is_refused_and_filled_after_a_reset(
    delta: DeltaJob, tmp_path: Path
) -> None:
    delta.write(1)
    delta.run()
    shutil.copytree(delta.path, tmp_path / "copy")
    delta.write(2, 3)
    delta.run()
    shutil.rmtree(delta.path)
    shutil.move(tmp_path / "copy", delta.path)
    reason = delta.refusal()
    assert "the table has only those before offset 1" in reason
    delta.broker.set_committed(delta.group, {INPUT: Committed(1)})
    delta.run()
    assert delta.rows() == [(0, 1), (1, 2), (2, 3)]


def test_a_group_that_is_set_forward_is_refused_until_the_position_is_moved(job: Job) -> None:
    job.write(1, b"poison", 3)
    job.run()
    job.write(4, 5)
    job.broker.set_committed(job.group, {INPUT: Committed(4)})
    assert "goes on at offset 4" in job.refusal()
    job.move(4)
    job.run()
    assert [n for _, n in job.rows()] == [1, 3, 5]


def test_the_records_of_a_topic_that_was_made_again_are_new(job: Job) -> None:
    job.write(1, 2)
    job.run()
    job.broker.topics["in"].id = "another"
    assert "of the records of in[0], the table has none" in job.refusal()
    job.broker.set_committed(job.group, {INPUT: Committed(0)})
    job.run()
    assert job.rows() == [(0, 1), (0, 1), (1, 2), (1, 2)]


def test_a_topic_that_has_lost_records_of_the_table_is_refused(job: Job) -> None:
    job.write(1)
    job.run()
    job.move(9)
    assert "up to offset 9, but its records end at 1" in job.refusal()


def test_a_task_that_begins_where_records_were_deleted_starts_there(job: Job) -> None:
    job.write(1, 2, 3)
    job.broker.log(INPUT).delete_before(1)
    job.run()
    assert job.rows() == [(1, 2), (2, 3)]


def test_records_that_are_deleted_before_they_are_in_the_table_are_reported(job: Job) -> None:
    job.write(1)
    job.run()
    job.write(2, 3)
    job.broker.forget(job.group)
    job.broker.log(INPUT).delete_before(2)
    assert "goes on at offset 2" in job.refusal()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": "n INT"}, "has other columns than the schema of the processor: n."),
        ({"schema": "n BIGINT NOT NULL"}, "has other columns than the schema of the processor: n."),
        ({"schema": "n BIGINT, x INT"}, "has other columns than the schema of the processor: x."),
        ({"record_columns": {}}, "the schema of the processor: at."),
        ({"partition_by": ("n",)}, r"is partitioned by [], not by ['n']"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    files: FileJob, changes: dict[str, Any], reason: str
) -> None:
    files.write(1)
    files.run()
    assert reason in files.refusal(files.changed(**changes))


def test_a_place_that_is_not_allowed_is_refused_where_the_task_runs(delta: DeltaJob) -> None:
    reason = delta.refusal(delta.changed(path="elsewhere"))
    assert 'path "elsewhere" is outside of what config.yaml allows' in reason


def test_columns_are_added_to_a_table_if_they_may_be_null(job: Job) -> None:
    job.write(1)
    job.run()
    wider = {"schema": "n BIGINT, x INT, m STRING"}
    assert "x" in job.refusal(job.changed(**wider))
    assert "x" in job.refusal(job.changed(evolve="add", schema="n BIGINT, x INT NOT NULL"))
    assert "n" in job.refusal(job.changed(evolve="add", schema="n INT, x INT"))
    job.write(b'{"m": "a", "n": 2, "x": 7}')
    job.run(job.changed(evolve="add", **wider))
    assert job.select("n", "x", "m") == [(1, None, None), (2, 7, "a")]
    job.write(b'{"m": "b"}')
    job.run(job.changed(evolve="add", **wider))
    assert (None, None, "b") in job.select("n", "x", "m")


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


def test_two_tasks_append_to_one_table_at_the_same_time(job: Job) -> None:
    other = replace(job.replica, task=TaskId("Q", 0))
    job.write(1, 2)
    first, second = job.owner(), job.owner(other)
    for owner in (first, second):
        owner.start()
        owner.drain()
    for owner in (first, second):
        owner.commit()
        owner.drop()
    assert job.rows() == [(0, 1), (0, 1), (1, 2), (1, 2)]


def test_a_full_buffer_asks_for_a_commit(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    for most in (2, 3):
        monkeypatch.setattr(processor, "MOST_ROWS", most)
        owner = job.owner()
        owner.start()
        owner.running.add(RecordBatch("in", 0, [b"k"] * 2, [b"{}"] * 2, [1, 2], [0, 1]))
        asked.append(owner.running.turn(float("inf")).wants_commit)
        owner.drop()
    assert asked == [True, False]


def test_without_the_package_the_task_is_failed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("deltalake", "pyiceberg.catalog", "psycopg"):
        monkeypatch.setitem(sys.modules, package, None)
    assert "need the package kafka-pipeline[tables] where their tasks run" in job.refusal()

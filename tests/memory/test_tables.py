"""A task that writes a table, on brokers in memory: stopped at each step, and taken over."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    TransactionFailedError,
)
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.rejected_records import ProcessingFailedError
from kafka_pipeline.streams.tables import processor
from tests.memory.stored_jobs import each_file_format, file_job
from tests.memory.table_jobs import (
    INPUT,
    FileJob,
    Job,
    ParquetJob,
    PostgresJob,
    StoppedError,
    before_commit,
    stop_at,
)


@pytest.fixture(params=["postgres", *each_file_format()])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    if request.param == "postgres":
        return PostgresJob(tmp_path, request.getfixturevalue("database"))
    return file_job(request, tmp_path)


@pytest.fixture(params=each_file_format())
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileJob:
    return file_job(request, tmp_path)


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
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    files: FileJob, changes: dict[str, Any], reason: str
) -> None:
    files.write(1)
    files.run()
    assert reason in files.refusal(files.changed(**changes))


def test_columns_are_added_to_a_table_if_they_may_be_null(job: Job) -> None:
    job.write(1)
    job.run()
    wider = {"schema": "n BIGINT, x INT, m STRING"}
    assert "`evolve: add`" in job.refusal(job.changed(**wider))
    refusal = job.refusal(job.changed(evolve="add", schema="n BIGINT, x INT NOT NULL"))
    assert "x" in refusal
    assert "evolve" not in refusal
    assert "n" in job.refusal(job.changed(evolve="add", schema="n INT, x INT"))
    job.write(b'{"m": "a", "n": 2, "x": 7}')
    job.run(job.changed(evolve="add", **wider))
    assert job.select("n", "x", "m") == [(1, None, None), (2, 7, "a")]
    job.write(b'{"m": "b"}')
    job.run(job.changed(evolve="add", **wider))
    assert (None, None, "b") in job.select("n", "x", "m")


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
    if isinstance(job, ParquetJob):
        job.write(1)
        job.run()  # it needs none
        assert job.rows() == [(0, 1)]
        return
    assert "need the package kafka-pipeline[tables] where their tasks run" in job.refusal()

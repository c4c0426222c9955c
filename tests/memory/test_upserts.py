"""Rows that replace others by their key, in tables of each format."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_pipeline.common.kafka.clients import FencedError
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.operations.compaction import Compacted, compact
from kafka_pipeline.streams.tables import delta
from tests.memory.table_jobs import INPUT, DeltaJob, Job, PostgresJob, StoppedError, stop_at


@pytest.fixture(params=["delta", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Job]:
    """Return what makes a job with a table of the format, by its schema and more of its spec."""
    if request.param == "delta":
        return partial(DeltaJob, tmp_path)
    return partial(PostgresJob, tmp_path, request.getfixturevalue("database"))


@pytest.fixture
def upserts(make: Callable[..., Job]) -> Job:
    return make("id INT NOT NULL, name STRING", mode="upsert", key=("id",))


def change(job: Job, key: int, name: str | None) -> None:
    """Write an upsert, or the deletion of a key."""
    value = None if name is None else b'{"id": %d, "name": "%s"}' % (key, name.encode())
    job.broker.write(INPUT, b"%d" % key, value, 1)


def test_the_last_change_of_a_key_wins_in_a_commit_and_over_commits(upserts: Job) -> None:
    for key, name in [(1, "ann"), (2, "bob"), (1, "anna"), (3, "cem"), (3, None), (4, None)]:
        change(upserts, key, name)
    upserts.run()
    assert upserts.select("id", "name") == [(1, "anna"), (2, "bob")]
    for key, name in [(2, None), (3, "cem"), (1, None), (1, "ann")]:
        change(upserts, key, name)
    upserts.run()
    assert upserts.select("id", "name") == [(1, "ann"), (3, "cem")]
    assert upserts.position == upserts.committed == 10
    assert upserts.letters == []


def test_a_table_may_be_its_key_alone(make: Callable[..., Job]) -> None:
    job = make("n INT NOT NULL", mode="upsert", key=("n",))
    job.replica = job.changed(record_columns={})
    job.write(1, 2)
    job.run()
    job.write(2, 3)
    job.broker.write(INPUT, b"1", None, 1)
    job.run()
    assert job.select("n") == [(2,), (3,)]


def test_the_key_of_a_record_may_be_that_of_the_table(make: Callable[..., Job]) -> None:
    job = make("n INT", mode="upsert", key=("k",))
    job.replica = job.changed(record_columns={"key": "k"})
    for key, value in [(b"a", b"1"), (b'{"', b"2"), (b"a", None), (None, b"3"), (None, None)]:
        job.broker.write(INPUT, key, value and b'{"n": %s}' % value, 1)
    job.run()
    assert job.select("k", "n") == [('{"', 2)]
    assert job.letters == [b'{"n": 3}', None]


def test_a_deletion_whose_key_does_not_fit_is_a_dead_letter(upserts: Job) -> None:
    change(upserts, 1, "ann")
    change(upserts, 2, "bob")
    for key in (b"ann", b"2.5", b'{"id": null}', b'{"name": 1}', None, b""):
        upserts.broker.write(INPUT, key, None, 1)
    upserts.broker.write(INPUT, b'{"id": 1, "more": 2}', None, 1)
    upserts.run()
    assert upserts.select("id", "name") == [(2, "bob")]
    assert upserts.letters == [None] * 6


@pytest.mark.parametrize("point", ["before-write", "after-write"])
def test_a_change_is_made_once_wherever_the_process_ends(
    upserts: Job, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(upserts, 1, "ann")
    change(upserts, 2, "bob")
    upserts.run()
    change(upserts, 1, None)
    change(upserts, 2, "bo")
    owner = upserts.started()
    with monkeypatch.context() as patch:
        stop_at(point, patch)
        with pytest.raises(StoppedError):
            owner.commit()
    owner.drop()
    change(upserts, 3, "cem")
    upserts.run()
    assert upserts.select("id", "name") == [(2, "bo"), (3, "cem")]
    assert upserts.position == upserts.committed == 5


def test_deletions_of_rows_that_are_not_there_move_the_position(upserts: Job) -> None:
    change(upserts, 1, None)
    upserts.run()
    assert upserts.position == upserts.committed == 1
    change(upserts, 2, None)
    upserts.run()
    assert upserts.position == upserts.committed == 2


def test_an_old_owner_that_commits_late_changes_nothing(upserts: Job) -> None:
    change(upserts, 1, "ann")
    old = upserts.started()
    change(upserts, 1, None)
    upserts.run()
    with pytest.raises(FencedError):
        old.commit()
    old.drop()
    assert upserts.select("id") == []


def test_keys_of_all_types(make: Callable[..., Job]) -> None:
    types = {
        "a": ("TINYINT", b"-1"),
        "b": ("BIGINT", b"9007199254740993"),
        "c": ("DECIMAL(38, 2)", b'"12345678901234567890.10"'),
        "d": ("STRING", b'"o\\u0027hara\\\\"'),
        "e": ("BINARY", b'"AP8="'),
        "f": ("BOOLEAN", b"true"),
        "g": ("DATE", b'"2026-02-28"'),
        "h": ("TIMESTAMP", b'"2026-01-01T01:00:00.000001+01:00"'),
        "i": ("TIMESTAMP_NTZ", b'"2026-01-01T01:00:00.000001"'),
    }
    schema = ", ".join(f"{name} {type_} NOT NULL" for name, (type_, _) in types.items())
    job = make(f"n INT, {schema}", mode="upsert", key=tuple(types))
    key = b", ".join(b'"%s": %s' % (name.encode(), text) for name, (_, text) in types.items())
    other = key.replace(b"true", b"false")
    for n, each in [(1, key), (2, key), (3, other)]:
        job.broker.write(INPUT, None, b'{"n": %d, %s}' % (n, each), 1)
    job.run()
    assert job.select("n") == [(2,), (3,)]
    job.broker.write(INPUT, b"{%s}" % key, None, 1)
    job.run()
    assert job.select("n") == [(3,)]
    assert job.letters == []


def test_two_tasks_upsert_the_same_rows_at_the_same_time(upserts: Job) -> None:
    for number in range(2_000):
        change(upserts, number * 7 % 500, None if number % 5 == 0 else f"name{number}")
    for _ in range(3):
        owners = [
            upserts.started(replace(upserts.replica, task=TaskId(processor, 0)))
            for processor in ("P", "Q")
        ]
        errors: list[Exception] = []

        def commit(owner: Any, errors: list[Exception] = errors) -> None:
            try:
                owner.commit()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=commit, args=(owner,)) for owner in owners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for owner in owners:
            owner.drop()
        for number in range(500):
            change(upserts, (499 - number) * 11 % 500, f"later{number}")
    names = {(499 - number) * 11 % 500: f"later{number}" for number in range(500)}
    assert upserts.select("id", "name") == sorted(names.items())


def test_a_commit_between_the_look_and_the_merge_is_refused_by_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = DeltaJob(tmp_path, "id INT NOT NULL, name STRING", mode="upsert", key=("id",))
    change(job, 1, "ann")
    old = job.started()
    change(job, 1, "anna")
    merged = delta.last_changes  # type: ignore[attr-defined]

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(delta, "last_changes", merged)
        job.run()
        return merged(*args)

    monkeypatch.setattr(delta, "last_changes", overtaken)
    with pytest.raises(FencedError):
        old.commit()
    old.drop()
    assert job.select("id", "name") == [(1, "anna")]


def test_files_are_joined_while_tasks_merge_and_neither_fails(tmp_path: Path) -> None:
    job = DeltaJob(tmp_path, "id INT NOT NULL, name STRING", mode="upsert", key=("id",))
    for number in range(20):
        change(job, number, "old")
        job.run()
    for number in range(0, 20, 2):
        change(job, number, "new" if number % 4 else None)
    owner = job.started()
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(compact(str(job.path))))
    thread.start()
    owner.commit()
    thread.join()
    owner.drop()
    assert isinstance(done[0], Compacted)
    left = dict.fromkeys(range(20), "old")
    left |= dict.fromkeys(range(2, 20, 4), "new")
    for number in range(0, 20, 4):
        del left[number]
    assert job.select("id", "name") == sorted(left.items())


def test_a_merge_begins_again_after_files_were_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = DeltaJob(tmp_path, "id INT NOT NULL, name STRING", mode="upsert", key=("id",))
    for name in ("ann", "bob", "cem"):
        change(job, len(name) + ord(name[0]), name)
        job.run()
    change(job, 3 + ord("a"), "anna")
    owner = job.started()
    seen: list[Compacted | None] = []
    merged = delta.last_changes  # type: ignore[attr-defined]

    def joined(*args: Any) -> Any:
        if not seen:
            seen.append(compact(str(job.path)))
        return merged(*args)

    monkeypatch.setattr(delta, "last_changes", joined)
    owner.commit()
    owner.drop()
    assert seen == [Compacted(joined=3, made=1, deleted=0)]
    assert [name for _, name in job.select("id", "name")] == ["anna", "bob", "cem"]
    assert job.position == job.committed == 4


def test_files_are_not_joined_where_there_is_no_table(tmp_path: Path) -> None:
    assert compact(str(tmp_path / "none")) is None

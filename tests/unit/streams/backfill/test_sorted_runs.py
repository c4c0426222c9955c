"""Runs are merged by time, and keep the order of each of them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_pipeline.streams.backfill import sorted_runs
from kafka_pipeline.streams.backfill.sorted_runs import SCHEMA, RunWriter, batches, merged
from kafka_pipeline.streams.sql.columns import HEADERS

Rows = Sequence[tuple[int, int]]
"""Timestamps and positions."""


def write(path: Path, rows: Rows, per_write: int = 3) -> Path:
    writer = RunWriter(path)
    for start in range(0, len(rows), per_write):
        part = rows[start : start + per_write]
        writer.write(
            pa.Table.from_arrays(
                [
                    pa.array([b"%d" % position for _, position in part], pa.binary()),
                    pa.array([path.stem.encode()] * len(part), pa.binary()),
                    pa.array([time for time, _ in part], pa.int64()),
                    pa.nulls(len(part), HEADERS),
                    pa.array([position for _, position in part], pa.int64()),
                ],
                schema=SCHEMA,
            )
        )
    writer.close()
    return path


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "_SMALLEST_BATCH", 3)


def read(paths: Sequence[Path]) -> list[tuple[int, str, int]]:
    """Return timestamps, runs and positions in the order in which they come."""
    return [
        (row["timestamp"], row["value"].decode(), row["position"])
        for table in merged(paths, paths[0].parent)
        for row in table.to_pylist()
    ]


def test_records_of_several_runs_come_in_the_order_of_time(tmp_path: Path) -> None:
    first = write(tmp_path / "a", [(10, 0), (30, 1), (30, 2), (70, 3), (80, 4)])
    second = write(tmp_path / "b", [(20, 0), (30, 0), (90, 1)])
    assert [row[:2] for row in read([first, second])] == [
        (10, "a"), (20, "b"), (30, "b"), (30, "a"), (30, "a"), (70, "a"), (80, "a"), (90, "b"),
    ]  # fmt: skip


def test_records_of_one_run_never_change_their_order(tmp_path: Path) -> None:
    late = write(tmp_path / "a", [(50, 0), (10, 1), (20, 2), (60, 3)])
    other = write(tmp_path / "b", [(30, 0), (55, 1)])
    # What is late comes as soon as all before it has come.
    assert [row[:2] for row in read([late, other])] == [
        (30, "b"), (50, "a"), (10, "a"), (20, "a"), (55, "b"), (60, "a"),
    ]  # fmt: skip


RUNS = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=15), min_size=1, max_size=12)


@given(RUNS, st.integers(2, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_merge_is_a_sort_by_time_so_far_position_and_run_however_many_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    times: list[list[int]],
    at_once: int,
) -> None:
    monkeypatch.setattr(sorted_runs, "_MOST_AT_ONCE", at_once)
    folder = tmp_path_factory.mktemp("runs")
    paths = [
        write(folder / str(number), [(time, at) for at, time in enumerate(each)])
        for number, each in enumerate(times)
    ]
    expected = sorted(
        (so_far, at, number, each[at])
        for number, each in enumerate(times)
        for at, so_far in enumerate(accumulate(each, max))
    )
    assert read(paths) == [(time, str(number), at) for _, at, number, time in expected]
    assert sorted(folder.iterdir()) == sorted(paths)


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Let this process open at most so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_partition_of_a_thousand_runs_needs_few_descriptors(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n:04}", [(n, 0), (n + 5, 1)]) for n in range(1_000)]
    with few_descriptors(100):  # other threads of this process open some, too
        found = read(paths)
    assert len(found) == 2_000
    assert [time for time, *_ in found] == sorted(time for time, *_ in found)


def test_a_merge_has_one_batch_of_each_run_in_memory_though_all_have_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path / str(n), [(7, at) for at in range(30)]) for n in range(3)]
    load, loads = sorted_runs._Cursor.load, []

    def counted(cursor: sorted_runs._Cursor) -> None:
        assert not len(cursor)
        loads.append(cursor.number)
        load(cursor)

    monkeypatch.setattr(sorted_runs._Cursor, "load", counted)
    first = next(merged(paths, tmp_path))
    assert loads == [0, 1, 2]
    assert first["position"].to_pylist()[:4] == [0, 0, 0, 1]


def test_offsets_count_from_0_unless_they_are_those_of_a_topic(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [(1, 100), (2, 105), (3, 106), (4, 110)], per_write=2)
    for keeps, offsets in ((False, [0, 1, 2, 3]), (True, [100, 105, 106, 110])):
        found = [offset for b in batches([path], "t", 1, keeps, tmp_path) for offset in b.offsets]
        assert found == offsets


def test_large_records_come_in_small_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_runs, "_BATCH_BYTES", 1)
    path = write(tmp_path / "a", [(time, time) for time in range(5)])
    assert [len(table) for table in merged([path], tmp_path)] == [1] * 5


def test_large_records_lie_in_small_batches_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_runs, "_SMALLEST_BATCH", 10_000)
    monkeypatch.setattr(sorted_runs, "_RUN_BATCH_BYTES", 1_000)
    sizes = [1] * 50 + [400] * 20 + [5_000] * 2 + [1] * 50
    table = pa.Table.from_arrays(
        [
            pa.nulls(len(sizes), pa.binary()),
            pa.array([bytes(size) for size in sizes], pa.binary()),
            pa.array(range(len(sizes)), pa.int64()),
            pa.nulls(len(sizes), HEADERS),
            pa.array(range(len(sizes)), pa.int64()),
        ],
        schema=SCHEMA,
    )
    writer = RunWriter(tmp_path / "a")
    for start in range(0, len(sizes), 7):
        writer.write(table.slice(start, 7))
    writer.close()
    with pa.ipc.open_file(str(tmp_path / "a")) as file:
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    assert pa.Table.from_batches(batches).equals(table)
    assert all(batch.nbytes <= 1_000 or len(batch) == 1 for batch in batches)
    assert len(batches) < 40


def test_a_partition_without_runs_has_no_records(tmp_path: Path) -> None:
    assert list(batches([], "t", 0, False, tmp_path)) == []

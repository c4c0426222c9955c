"""Columns of files become records, or an error with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.streams.backfill import files
from kafka_pipeline.streams.backfill.files import ReadFile, chunks_of, find_files
from kafka_pipeline.streams.backfill.outputs import runs_of
from kafka_pipeline.streams.backfill.sorted_runs import batches
from kafka_pipeline.streams.backfill.tasks import Done, Workspace
from kafka_pipeline.streams.partitioning import default_partition

Row = tuple[bytes | None, bytes | None, int, Any]


def read(folder: Path, path: Path, partitions: int = 1) -> list[list[Row]]:
    """Return key, value, timestamp and headers of the records of each partition, in order."""
    folders = []
    for number, chunk in enumerate(chunks_of(find_files(path))):
        place = folder / f"task-{number}"
        place.mkdir()
        assert isinstance(ReadFile(place, chunk, "in", partitions).work(Workspace(place)), Done)
        folders.append(place)
    return [
        [
            (key, value, time, batch.headers[i] if batch.headers else None)
            for batch in batches(runs_of(folders, "in", number), "in", number, False, folder)
            for i, (key, value, time) in enumerate(
                zip(batch.keys, batch.values, batch.timestamps, strict=True)
            )
        ]
        for number in range(partitions)
    ]


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_records_come_in_the_order_of_time_and_then_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    parquet(
        tmp_path / "in" / "a.parquet", key=["k"] * 3, value=["1", "2", "3"], timestamp=[5, 3, 5]
    )
    parquet(tmp_path / "in" / "b.parquet", key=["k"] * 2, value=["4", "5"], timestamp=[5, 1])
    (found,) = read(tmp_path, tmp_path / "in")
    assert [value for _, value, _, _ in found] == [b"5", b"2", b"1", b"3", b"4"]


@pytest.mark.parametrize("is_dictionary", [False, True])
def test_large_values_are_read_and_sorted_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_dictionary: bool
) -> None:
    """Neither its number of records nor its size in the file shows how large a row group is."""
    monkeypatch.setattr(files, "_CHUNK_BYTES", 100_000)
    monkeypatch.setattr(files, "_BATCH_RECORDS", 4)
    values = pa.array([b"%d" % (n % 7) * 9_000 for n in range(60)])
    table = pa.table(
        {
            "value": values.dictionary_encode() if is_dictionary else values,
            "timestamp": pa.array(range(60, 0, -1)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=60)
    sizes: list[int] = []
    records_of = files.records_of

    def measured(table: pa.Table, *arguments: Any) -> Any:
        sizes.append(table.nbytes)
        return records_of(table, *arguments)

    monkeypatch.setattr(files, "records_of", measured)
    (found,) = read(tmp_path, tmp_path / "a.parquet")
    assert [value for _, value, _, _ in found] == values.to_pylist()[::-1]
    assert len(sizes) > 1
    assert max(sizes) <= 100_000


def test_row_groups_of_many_bytes_are_chunks_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path / "a.parquet", value=["a" * 500] * 10, timestamp=range(10))
    assert [chunk.records for chunk in chunks_of([path])] == [10]
    size = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
    monkeypatch.setattr(files, "_CHUNK_BYTES", size + 1)
    assert [chunk.records for chunk in chunks_of([path])] == [4, 4, 2]


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("day/a.parquet", True),
        ("day=1/a.parquet", True),
        ("_day=1/a.parquet", True),
        ("_a.parquet", False),
        (".a.parquet", False),
        ("_delta_log/a.parquet", False),
        ("day=1/_temporary/0/a.parquet", False),
        (".spark-staging/day=1/a.parquet", False),
    ],
)
def test_files_and_folders_that_are_not_meant_to_be_read_are_left_out(
    tmp_path: Path, name: str, is_read: bool
) -> None:
    # What is above the folder has no say.
    folder = tmp_path / "_mine"
    for each in ("always.parquet", name):
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        (folder / each).touch()
    wanted = {"always.parquet", name} if is_read else {"always.parquet"}
    assert {str(path.relative_to(folder)) for path in find_files(folder)} == wanted


def test_offsets_decide_between_records_of_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_CHUNK_RECORDS", 2)
    path = parquet(
        tmp_path / "a.parquet", value=["1", "2", "3", "4"], timestamp=[7] * 4, offset=[9, 2, 4, 3]
    )
    (found,) = read(tmp_path, path)
    assert [value for _, value, _, _ in found] == [b"2", b"4", b"3", b"1"]


def test_the_key_decides_about_the_partition_and_keyless_ones_take_turns(tmp_path: Path) -> None:
    keys = ["a", None, "b", None, "c", None, "a"]
    path = parquet(
        tmp_path / "a.parquet", key=keys, value=[str(n) for n in range(7)], timestamp=range(7)
    )
    found = read(tmp_path, path, 3)
    where = {int(row[1] or b""): n for n, rows in enumerate(found) for row in rows}
    for at, key in enumerate(keys):
        assert where[at] == (at % 3 if key is None else default_partition(key.encode(), 3))


def test_a_partition_column_goes_before_the_key(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a.parquet", key=["a"] * 2, value=["0", "1"], timestamp=[0, 0], partition=[1, 0]
    )
    assert [rows[0][1] for rows in read(tmp_path, path, 2)] == [b"1", b"0"]


def test_csv_has_nulls_empty_texts_line_breaks_and_iso_times(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "key,value,timestamp\n"
        "7,,2026-01-01T00:00:00Z\n"
        ',"",2026-01-01T00:00:01Z\n'
        '"a,b","x\ny",2026-01-01T00:00:02Z\n'
    )
    (found,) = read(tmp_path, path)
    start = 1_767_225_600_000
    assert found == [
        (b"7", None, start, None),
        (None, b"", start + 1000, None),
        (b"a,b", b"x\ny", start + 2000, None),
    ]


@pytest.mark.parametrize(
    ("column", "bytes_"),
    [
        (pa.array([b"\xff", None]), [b"\xff", None]),
        (pa.array(["ä", ""]), ["ä".encode(), b""]),
        (pa.array(["x", "y"], pa.large_string()), [b"x", b"y"]),
        (pa.array(["x", "x"]).dictionary_encode(), [b"x", b"x"]),
        (pa.array([-1, None]), [b"-1", None]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_values_become_bytes(tmp_path: Path, column: pa.Array, bytes_: list[bytes | None]) -> None:
    (found,) = read(tmp_path, parquet(tmp_path / "a.parquet", value=column, timestamp=[0, 1]))
    assert [value for _, value, _, _ in found] == bytes_


def test_headers_are_kept(tmp_path: Path) -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    path = parquet(
        tmp_path / "a.parquet", value=["0", "1"], timestamp=[0, 1], headers=pa.array(headers)
    )
    (found,) = read(tmp_path, path)
    assert [row[3] for row in found] == [[("h", b"1"), ("h", None)], None]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": ["a"]}, 'has no column "timestamp"'),
        ({"timestamp": [0]}, 'has no column "value"'),
        ({"value": ["a"], "timestamp": [0], "keys": ["a"]}, 'did you mean "key"'),
        ({"value": [1.5], "timestamp": [0]}, "is of the type double: make it binary or text"),
        ({"value": ["a"], "timestamp": ["x"]}, "is of the type string: make it a time"),
        ({"value": ["a"], "timestamp": [None]}, "is of the type null"),
        ({"value": ["a"], "timestamp": [-1]}, "has a null, or a time before 1970"),
        ({"value": ["a"], "timestamp": [0], "offset": ["1"]}, "must have an integer in every row"),
        ({"value": ["a"], "timestamp": [0], "partition": [1]}, "set parallelism"),
        ({"value": ["a"], "timestamp": [0], "headers": [1]}, "must be a list of structs"),
    ],
)
def test_what_are_no_records_is_refused(
    tmp_path: Path, columns: dict[str, list[Any]], message: str
) -> None:
    path = parquet(tmp_path / "a.parquet", **columns)
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.parquet", "there is no file or folder"),
        ("a.json", "must end in .parquet or .csv"),
        ("empty", "has no .parquet and no .csv file"),
        ("torn.parquet", "cannot be read as Parquet"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.parquet").write_text("PAR1")
    with pytest.raises(ConfigError, match=message):
        chunks_of(find_files(tmp_path / name))

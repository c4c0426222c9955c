"""The files of savepoints: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from admin.savepoints.manifest import (
    FORMAT,
    Manifest,
    SavedInput,
    SavedPartition,
    SavedPosition,
    SavedStore,
    is_savepoint,
    made_version,
    pipeline_file,
    read_manifest,
    write_manifest,
)
from admin.savepoints.record_files import RecordFile, check_file, read_records
from admin.savepoints.sharding import check_keys, require_empty, spread_position
from common.deployment import PipelineVersion
from common.errors import ConfigError
from common.kafka.committed import Committed
from common.pipeline import Pipeline
from common.record_batch import KafkaHeaders, RecordBatch
from common.topic_names import TopicNames
from streams.backfill.partitions import partitions_of

NAMES = TopicNames("job", "in", "out")
VERSION = PipelineVersion(3, Pipeline((), NAMES, 2, {"in": 4}), "[]\n", 1_700_000_000_000, "me@x")


def batch(keys: list[bytes | None], headers: list[KafkaHeaders] | None = None) -> RecordBatch:
    size = len(keys)
    values = [None if n % 3 == 2 else b"v%d" % n for n in range(size)]
    times = [1000 + n for n in range(size)]
    return RecordBatch("t", 0, keys, values, times, list(range(size)), headers)


def saved(folder: Path, *batches: RecordBatch, partition: int = 0) -> SavedPartition:
    file = RecordFile(folder, "t", partition)
    for each in batches:
        file.write(each)
    return file.finish()


def manifest(stores: tuple[SavedStore, ...] = (), inputs: tuple[SavedInput, ...] = ()) -> Manifest:
    return Manifest(
        format=FORMAT,
        job="job",
        cluster="c",
        made_at_ms=1,
        made_by="me@x",
        stopped_ms=2,
        token="t0",
        version=made_version(VERSION),
        stores=stores,
        inputs=inputs,
    )


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    headers: list[KafkaHeaders] = [None, [], [("a", b"1"), ("a", None)]]
    first, second = batch([b"k", None, b""], headers), batch([b"\xff" * 300])
    part = saved(tmp_path, first, second)
    assert (part.partition, part.records) == (0, 4)
    check_file(tmp_path, "t", part)
    found = list(read_records(tmp_path, "t", 0))
    for read, written in zip(found, (first, second), strict=True):
        assert read.keys.to_pylist() == list(written.keys)
        assert read.values.to_pylist() == list(written.values)
        assert read.timestamps.to_pylist() == list(written.timestamps)
        assert read.headers == (written.headers or [None] * len(written))


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_damaged_file_is_refused(tmp_path: Path, harm: str) -> None:
    part = saved(tmp_path, batch([b"k"] * 50))
    path = tmp_path / "t-0.arrow"
    content = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(content[:-1])
    elif harm == "changed":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.unlink()
    with pytest.raises(ConfigError, match=r"t-0\.arrow"):
        check_file(tmp_path, "t", part)


def test_file_that_was_not_finished_is_closed(tmp_path: Path) -> None:
    file = RecordFile(tmp_path, "t", 0)
    file.write(batch([b"k"]))
    file.close()
    file.close()
    with pytest.raises(FileExistsError):
        RecordFile(tmp_path, "t", 0)


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    part = SavedPartition(partition=1, records=2, size_bytes=3, sha256="00")
    made = manifest(
        (SavedStore(processor="P", store="s", topic="state_topic_P_job", partitions=(part,)),),
        (
            SavedInput(
                processor="P",
                name="source",
                topic="in",
                topic_id="id",
                is_arc=False,
                positions=(SavedPosition(partition=0, offset=7, metadata="2:5:1:2"),),
            ),
        ),
    )
    assert not is_savepoint(tmp_path)
    write_manifest(tmp_path, made, "[]\n")
    assert is_savepoint(tmp_path)
    found = read_manifest(tmp_path)
    assert found == made
    assert found.pipeline_version() == VERSION
    assert found.inputs[0].positions[0].committed == Committed(7, 5, 1, 2)
    assert (found.records(), found.size_bytes) == ((2, 0), 3)
    assert pipeline_file(tmp_path).read_text() == "[]\n"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, "has format 2, and this version of the engine reads 1"),
        ({"format": None}, "has format None"),
        ({"stores": 5}, "cannot be read"),
        ({"unknown": 1}, "unknown field"),
        ({"version": {}}, "cannot be read"),
        ({"token": "../x"}, "cannot be read"),
    ],
)
def test_manifest_that_this_engine_did_not_write_is_refused(
    tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    write_manifest(tmp_path, manifest(), "")
    path = tmp_path / "savepoint.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=problem):
        read_manifest(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{" * 100_000])
def test_manifest_that_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "savepoint.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"savepoint\.json"):
        read_manifest(tmp_path)


def test_folder_without_a_manifest_is_no_savepoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no savepoint"):
        read_manifest(tmp_path)


def test_topic_of_a_manifest_is_no_path(tmp_path: Path) -> None:
    made = manifest((SavedStore(processor="P", store="s", topic="../../x", partitions=()),))
    write_manifest(tmp_path, made, "")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_manifest(tmp_path)


KEYS = [b"key-%d" % n for n in range(100)]


def spread(folder: Path, count: int) -> SavedStore:
    """Return a store whose keys are those of records that the default partitioner has spread."""
    places = partitions_of(pa.array(KEYS, pa.binary()), count)
    parts = [
        saved(
            folder, batch([k for k, at in zip(KEYS, places, strict=True) if at == n]), partition=n
        )
        for n in range(count)
    ]
    return SavedStore(processor="P", store="s", topic="t", partitions=tuple(parts))


def test_keys_of_records_may_be_spread_anew_and_others_not(tmp_path: Path) -> None:
    store = spread(tmp_path, 3)
    check_keys(tmp_path, store, 3)
    with pytest.raises(ConfigError, match='the store "s" of "P" has keys in task'):
        check_keys(tmp_path, store, 4)


def test_tasks_begin_with_the_largest_time_and_the_first_has_all_counts() -> None:
    before = (
        SavedPosition(partition=0, offset=9, metadata=Committed(9, 50, 1, 2).metadata),
        SavedPosition(partition=1, offset=3, metadata=Committed(3, 70, 4, 0).metadata),
    )
    arc = SavedInput(
        processor="P", name="A", topic="A_P", topic_id="i", is_arc=True, positions=before
    )
    assert spread_position(arc, 3) == {
        0: Committed(0, 70, 5, 2),
        1: Committed(0, 70),
        2: Committed(0, 70),
    }
    require_empty(arc)


def test_arc_with_records_left_is_refused() -> None:
    part = SavedPartition(partition=0, records=1, size_bytes=3, sha256="00")
    arc = SavedInput(processor="P", name="A", topic="A_P", topic_id="i", is_arc=True, left=(part,))
    with pytest.raises(ConfigError, match="A_P has records that were not processed"):
        require_empty(arc)

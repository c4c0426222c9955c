"""The files of savepoints: what is written is read, and what is damaged is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import LoggedStore, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.pipelines.spreading import Spreading
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import PipelineVersion, Wish, version_to_json
from kafka_pipeline.operations.savepoints import create
from kafka_pipeline.operations.savepoints.manifest import (
    FORMAT,
    Manifest,
    SavedInput,
    SavedPartition,
    SavedPosition,
    SavedStore,
    is_savepoint,
    pipeline_file,
    read_manifest,
    write_manifest,
)
from kafka_pipeline.operations.savepoints.record_files import RecordFile, check_file, read_records
from kafka_pipeline.operations.savepoints.saved_state import FolderState, Spreads
from kafka_pipeline.operations.savepoints.sharding import check_spread, spread_position
from kafka_pipeline.streams.backfill.partitions import partitions_of
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.rescaling.tasks import Tasks

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
        version=version_to_json(VERSION),
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


def test_a_folder_of_another_user_is_no_savepoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of a volume has such a `lost+found`."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.stat", refuse)
    assert not is_savepoint(tmp_path / "lost+found")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, r"has format 2, and this version of the engine \(.*\) reads 1: use"),
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
    with pytest.raises(ConfigError, match="is not a savepoint"):
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


def pipeline(
    parallelism: int,
    spreading: Spreading,
    inputs: tuple[str, ...] = ("F",),
    topics: Mapping[str, str] = {},
) -> Pipeline:
    """Return a forward and a processor with the store `s`, which the arc between them brings to."""
    first = PipelineProcessor("F", ForwardSpec(), ("P",), ("source",))
    stores = (LoggedStore("s", spreading=spreading),)
    second = PipelineProcessor("P", ForwardSpec(), ("sink",), inputs, topics=topics, stores=stores)
    return Pipeline((first, second), NAMES, parallelism, {"in": 4, "out": 1})


def test_keys_of_records_may_be_spread_anew_and_others_not(tmp_path: Path) -> None:
    keyed = Spreading(rule="key")
    store = spread(tmp_path, 3)
    spreads = Spreads(tmp_path, pipeline(3, keyed), pipeline(5, keyed))
    spreads.check([store])
    found = list(spreads.of("P", [store]).rows("s"))
    assert sorted(row.key for row in found) == sorted(KEYS)
    places = partitions_of(pa.array([row.key for row in found], pa.binary()), 5)
    assert [row.partition for row in found] == places.tolist()
    with pytest.raises(ConfigError, match='the store "s" of "P" has keys in task'):
        Spreads(tmp_path, pipeline(4, keyed), pipeline(5, keyed)).check([store])


def test_only_stores_whose_tasks_change_are_checked(tmp_path: Path) -> None:
    keyed = Spreading(rule="key")
    spreads = Spreads(tmp_path, pipeline(4, keyed), pipeline(4, keyed))
    assert not spreads.is_changed("P", "s")
    spreads.check([spread(tmp_path, 3)])


def test_state_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    file = RecordFile(tmp_path, "t", 1)
    state = FolderState(tmp_path, {"s": ("t", {1})})
    file.write(batch([b"a", b"b", b"c"]))
    assert file.so_far().records == 3
    assert [row.key for rows in state.read("s", 1) for row in rows] == [b"a", b"b", b"c"]
    # The last record of `c` deletes it.
    assert state.last("s", 1).keys() == {b"a", b"b"}
    file.write(batch([b"c"]))
    file.finish()
    assert state.last("s", 1).keys() == {b"a", b"b", b"c"}
    assert list(state.read("s", 0)) == []


def test_stores_of_user_code_are_spread_only_if_somebody_says_what_they_have() -> None:
    said, keyed = Spreading(), Spreading(rule="key")
    with pytest.raises(ConfigError, match=r'"P" has stores that may have any keys \("s"\)'):
        check_spread(pipeline(2, said), pipeline(4, said), ["P"], [])
    check_spread(pipeline(2, said), pipeline(4, said), ["P"], ["P"])
    check_spread(pipeline(2, keyed), pipeline(4, keyed), ["P"], [])


def test_inputs_with_different_numbers_of_partitions_are_refused() -> None:
    keyed = Spreading(rule="key")
    before, after = (pipeline(n, keyed, ("F", "in"), {"in": "in"}) for n in (4, 8))
    with pytest.raises(ConfigError, match="F_P_job has 8, in has 4"):
        check_spread(before, after, ["P"], [])


def test_tasks_begin_with_the_largest_time_and_the_first_has_all_counts() -> None:
    first = Committed(9, 50, 1, 2, dropped=(("expired", 3), ("null key", 1)))
    second = Committed(3, 70, 4, 0, dropped=(("expired", 4),))
    dropped = (("expired", 7), ("null key", 1))
    before = (
        SavedPosition(partition=0, offset=9, metadata=first.metadata),
        SavedPosition(partition=1, offset=3, metadata=second.metadata),
    )
    arc = SavedInput(
        processor="P", name="A", topic="A_P", topic_id="i", is_arc=True, positions=before
    )
    assert spread_position(arc, Tasks(2, 3)) == {
        0: Committed(0, 70, 5, 2, dropped=dropped),
        1: Committed(0, 70),
        2: Committed(0, 70),
    }
    # Each task has keys of one task only, and its time.
    assert spread_position(arc, Tasks(2, 4)) == {
        0: Committed(0, 50, 5, 2, dropped=dropped),
        1: Committed(0, 70),
        2: Committed(0, 50),
        3: Committed(0, 70),
    }


def test_records_that_wait_in_an_arc_go_with_their_keys(tmp_path: Path) -> None:
    store = spread(tmp_path, 3)
    arc = SavedInput(
        processor="P", name="F", topic="t", topic_id="i", is_arc=True, left=store.partitions
    )
    keyed = Spreading(rule="key")
    spreads = Spreads(tmp_path, pipeline(3, keyed), pipeline(5, keyed))
    found = [row for n in range(3) for row in spreads.left(arc, n, "t", Tasks(3, 5))]
    places = {key or b"": partition for _, key, _, partition, *_ in found}
    assert sorted(places) == sorted(KEYS)
    assert all(default_partition(key, 5) == partition for key, partition in places.items())
    assert len(found) == len(KEYS)
    with pytest.raises(ConfigError, match="records wait in t, and they are not in the partitions"):
        list(spreads.left(arc, 0, "t", Tasks(4, 5)))


def test_records_without_a_key_may_wait_anywhere() -> None:
    assert Tasks(4, 2).places_of_left(pa.array([None, None], pa.binary()), 3) == [1, 1]


@pytest.mark.parametrize("folder", ["", "/"])
def test_a_savepoint_needs_a_folder_of_its_own(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable of a script may be empty: that is the current folder."""
    nothing: Any = None
    deployment = SimpleNamespace(current="a version", wish=Wish(version=1))
    monkeypatch.setattr(create, "read_deployment", lambda *_: deployment)
    with pytest.raises(ConfigError, match="exists already"):
        create.Creation(nothing, nothing, Path(folder), print)

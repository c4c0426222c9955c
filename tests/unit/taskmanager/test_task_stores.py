"""The stores of tasks: where they are, and the proof that they were restored to the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.errors import SupersededError, UnavailableError
from kafka_pipeline.common.kafka.clients import NonRetriableError, Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import Changes
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.specs import CountSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams import serdes, stores
from kafka_pipeline.streams.engine.code_snapshot import snapshot
from kafka_pipeline.streams.stores import StoreBuilder
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.task_stores import (
    TaskStores,
    code_directory,
    folder_in,
    job_directory,
    sole_owner,
    task_directory,
)
from tests.unit.taskmanager.fakes import CONFIG


def replica_of(task: TaskId) -> ProcessorReplica:
    return ProcessorReplica(task, CountSpec(), ("source",), ("sink",), ("in",), ("out",))


def test_a_task_and_its_copy_have_one_directory(tmp_path: Path) -> None:
    config = replace(CONFIG, state_dir=tmp_path, job_name="shop")
    expected = tmp_path / "job_shop" / "taskmanager_3" / "Counter_0"
    assert task_directory(config, 3, replica_of(TaskId("Counter", 0))) == expected
    assert task_directory(config, 3, replica_of(TaskId("Counter", 0, standby=1))) == expected


@pytest.mark.parametrize("processor", ["../../home", "/etc", "a/b", "..//x"])
def test_a_task_whose_id_is_a_path_has_no_directory(tmp_path: Path, processor: str) -> None:
    config = replace(CONFIG, state_dir=tmp_path)
    with pytest.raises(NonRetriableError, match=r"is not the name of anything in"):
        task_directory(config, 3, replica_of(TaskId(processor, 0)))


@given(st.text(max_size=8) | st.text(alphabet="a./", max_size=6))
def test_a_folder_is_directly_in_its_directory_or_refused(name: str) -> None:
    directory = job_directory(CONFIG, 0)
    try:
        folder = folder_in(directory, name)
    except NonRetriableError:
        assert name_problem(name) is not None
    else:
        assert folder.parent == directory
        assert folder.name not in ("", "..")


def test_a_directory_has_one_task_manager_at_a_time(tmp_path: Path) -> None:
    config = replace(CONFIG, state_dir=tmp_path / "state", job_name="shop")
    with sole_owner(config, 0):
        with pytest.raises(SupersededError, match="id 0 is taken by"), sole_owner(config, 0):
            raise AssertionError
        for other, tm_id in ((config, 1), (replace(config, job_name="bank"), 0)):
            with sole_owner(other, tm_id):
                pass
    with sole_owner(config, 0):
        pass


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    config = replace(CONFIG, state_dir=file / "state")
    with pytest.raises(UnavailableError, match="cannot be written"), sole_owner(config, 0):
        raise AssertionError


def test_code_that_taskmanagers_copied_is_not_taken_for_the_users(tmp_path: Path) -> None:
    """By default, `state_dir` is next to the code, and each start would add a level of folders."""
    (tmp_path / "shop.py").write_text("")
    config = replace(CONFIG, state_dir=tmp_path / "state")
    for tm_id in (0, 1, 0, 1):
        (copy,) = snapshot([tmp_path], code_directory(config, tm_id))
        assert [file.name for file in copy.iterdir() if file.is_file()] == ["shop.py"]
    assert len([*tmp_path.rglob("shop.py")]) == 3


def test_a_store_whose_name_is_a_path_is_not_opened(tmp_path: Path) -> None:
    """No store builder accepts such a name: it would have to come from elsewhere."""
    opened: list[object] = []
    builder: Any = SimpleNamespace(
        name="../precious", logged=False, open=lambda *given: opened.append(given)
    )
    with pytest.raises(NonRetriableError):
        TaskStores([builder], {}, StoreResources()).open(tmp_path / "task", {}, {})
    assert not opened


def test_only_stores_on_disk_have_a_size() -> None:
    builders: list[Any] = [
        SimpleNamespace(name="memory", persistent=False),
        SimpleNamespace(name="disk", persistent=True),
    ]
    stores = TaskStores(builders, {}, StoreResources())
    sized: Any = SimpleNamespace(disk_bytes=lambda: 7)
    stores.stores = {"memory": sized, "disk": sized}
    assert stores.disk_bytes() == 7
    assert TaskStores(builders[:1], {}, StoreResources()).disk_bytes() is None


TEXT = serdes.string
IN_MEMORY: list[StoreBuilder[Any, Any]] = [
    stores.key_value("s", TEXT, TEXT, persistent=False),
    stores.window("s", TEXT, TEXT, retention_ms=10, window_size_ms=5, persistent=False),
    stores.session("s", TEXT, TEXT, retention_ms=10, persistent=False),
    stores.versioned_key_value("s", TEXT, TEXT, history_retention_ms=10, persistent=False),
]
of_each_kind = pytest.mark.parametrize("builder", IN_MEMORY, ids=lambda builder: builder.family)


class StateTopic:
    """A partition of a state topic whose leader says for a while that it ends earlier."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.said: int | None = None
        self.positions: dict[Partition, int] = {}

    @property
    def end(self) -> int:
        return len(self.records)

    def high_watermarks(self, partitions: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self.end if self.said is None else self.said)

    def oldest_offsets(self, partitions: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def assign(self, positions: dict[Partition, int]) -> None:
        self.positions |= positions

    def unassign(self, partitions: list[Partition]) -> None:
        self.positions.clear()

    def fetch_changes(self, *_: object) -> Changes:
        end = self.end if self.said is None else self.said
        (place,) = self.positions
        self.positions[place] = end
        return Changes(dict(self.records[:end]), end)

    def send_state(self, topic: str, number: int, changes: dict[bytes, bytes | None]) -> None:
        self.records += changes.items()

    def restored(self, builder: StoreBuilder[Any, Any]) -> TaskStores:
        found, this = TaskStores([builder], {"s": "state"}, StoreResources()), cast(Any, self)
        found.open(Path("/none"), {}, {"state": "id"})
        found.restore(0, this, this, lambda *_: None)
        return found

    def transaction(self, found: TaskStores) -> None:
        found.send(cast(Any, self), 0)
        if not found.are_proven:
            found.prove({"state": self.end})
        assert found.commit({"state": self.end})


@of_each_kind
def test_first_transaction_without_changes_proves_that_an_empty_store_is_whole(
    builder: StoreBuilder[Any, Any],
) -> None:
    topic = StateTopic()
    found = topic.restored(builder)
    assert not found.are_proven
    topic.transaction(found)
    assert found.are_proven
    assert topic.end == 1
    topic.transaction(found)
    assert topic.end == 1
    again = topic.restored(builder)
    assert again.are_empty
    assert again.stores["s"].max_timestamp <= 0


@of_each_kind
def test_first_transaction_without_changes_leaves_the_state_as_it_is(
    builder: StoreBuilder[Any, Any],
) -> None:
    topic = StateTopic()
    topic.records += [(number.to_bytes(32, "big"), b"v%d" % number) for number in range(3)]
    before = topic.restored(builder)
    topic.transaction(before)
    assert topic.end == 4
    after = topic.restored(builder)
    assert dict(after.stores["s"].entries()) == dict(topic.records[:3])
    assert dict(before.stores["s"].entries()) == dict(topic.records[:3])


@of_each_kind
@pytest.mark.parametrize("said", [0, 2])
@pytest.mark.parametrize("has_changes", [True, False])
def test_state_that_lacks_the_end_of_its_topic_is_not_committed(
    builder: StoreBuilder[Any, Any], said: int, has_changes: bool
) -> None:
    topic = StateTopic()
    topic.records += [(number.to_bytes(32, "big"), b"v") for number in range(3)]
    topic.said = said
    found = topic.restored(builder)
    if has_changes:
        found.stores["s"].put_many({bytes(32): b"x", bytes(33): b"y"})
    with pytest.raises(TransactionFailedError, match=f"up to offset {said} of state.* ended at 3"):
        topic.transaction(found)

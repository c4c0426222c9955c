"""The stores of tasks are always inside the job's directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.names import name_problem
from kafka_pipeline.common.pipelines.specs import CountSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.taskmanager.task_stores import (
    TaskStores,
    folder_in,
    job_directory,
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

"""State that no task has used for a week is deleted, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from kafka_pipeline.streams.stores.resources import StoreResources
from kafka_pipeline.streams.stores.rocksdb import RocksDBStore
from kafka_pipeline.taskmanager.unused_state import UnusedState

DAY_S = 86_400.0
NOW_S = 1_800_000_000.0


class Host:
    """A state directory, with the workers of a TaskManager and a clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_s = NOW_S
        self.resources = [StoreResources(), StoreResources()]
        self.workers = [
            UnusedState(directory, each.open_folders.copy, lambda: self.now_s)
            for each in self.resources
        ]

    def folder(self, name: str, age_days: float) -> Path:
        folder = self.directory / name
        folder.mkdir(parents=True)
        (folder / "CURRENT").write_text("x")
        os.utime(folder, (NOW_S - age_days * DAY_S,) * 2)
        return folder

    def look(self, times: int = 2) -> None:
        for _ in range(times):
            self.now_s += 3600
            for worker in self.workers:
                worker.look()


def test_state_of_a_week_ago_is_deleted_with_its_task(tmp_path: Path) -> None:
    host = Host(tmp_path)
    old, newer = host.folder("Counter_0/counts", 7.1), host.folder("Counter_1/counts", 6.9)
    former = host.folder("Counter_1/renamed", 30)
    host.look(1)
    assert old.exists(), "the clock may have jumped"
    host.look(1)
    assert not old.parent.exists()
    assert newer.exists()
    assert not former.exists()


def test_only_stores_of_tasks_are_deleted(tmp_path: Path) -> None:
    host = Host(tmp_path)
    elsewhere = tmp_path.parent / "elsewhere"
    elsewhere.mkdir()
    os.utime(elsewhere, (0, 0))
    others = [host.folder(name, 100) for name in (".code/lib", "global_stores/rates", "Counter/x")]
    host.folder("Counter_0/counts", 1)
    links = [tmp_path / "Counter_0" / "link", tmp_path / "Linked_0"]
    for link in links:
        link.symlink_to(elsewhere)
    host.look()
    assert all(each.exists() for each in [*others, *links, elsewhere])


def test_state_that_any_worker_has_open_stays(tmp_path: Path) -> None:
    """Also after a host has slept for a month, whichever worker looks first."""
    host = Host(tmp_path)
    folders = [tmp_path / "Counter_0" / "counts", tmp_path / "Counter_1" / "counts"]
    stores = [
        RocksDBStore(folder, {}, resources=resources)
        for folder, resources in zip(folders, host.resources, strict=True)
    ]
    for folder in folders:
        os.utime(folder, (NOW_S, NOW_S))
    host.look()
    host.now_s += 30 * DAY_S
    host.look(3)
    assert all(folder.exists() for folder in folders)
    stores[0].close()
    host.now_s += 8 * DAY_S
    host.look()
    assert [folder.exists() for folder in folders] == [False, True]
    stores[1].close()


def test_a_directory_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    Host(tmp_path / "none").look()

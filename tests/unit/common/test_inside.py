"""Paths of names from outside stay inside their folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import NonRetriableError
from kafka_pipeline.common.names import inside
from kafka_pipeline.operations.savepoints.manifest import file_of
from kafka_pipeline.taskmanager.task_stores import folder_in


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder, and one next to it."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    return folder, other


@pytest.mark.parametrize("name", ["Counter_0", "a.b", "...", "x" * 200])
def test_a_name_is_a_path_in_the_folder(folders: tuple[Path, Path], name: str) -> None:
    assert inside(folders[0], name) == folders[0] / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../other", "a/b", "/etc", "a/", "./a", "a/../b", "a\0b"]
)
def test_a_name_that_leads_elsewhere_is_refused(folders: tuple[Path, Path], name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of anything in"):
        inside(folders[0], name)


def test_a_link_that_leads_out_is_refused_and_what_it_leads_to_stays(
    folders: tuple[Path, Path],
) -> None:
    folder, other = folders
    (other / "precious").touch()
    (folder / "Counter_0").symlink_to(other)
    (folder / "topic-0.arrow").symlink_to(other / "precious")
    (folder / "gone").symlink_to(other / "not_there")
    (folder / "chain").symlink_to(folder / "Counter_0")
    for name in ("Counter_0", "gone", "chain"):
        with pytest.raises(NonRetriableError, match="is a link that leads out of"):
            folder_in(folder, name)
    with pytest.raises(ConfigError, match=r"is damaged: .*is a link that leads out of"):
        file_of(folder, "topic", 0)
    assert (other / "precious").exists()


def test_a_link_to_itself_is_refused(folders: tuple[Path, Path]) -> None:
    link = folders[0] / "loop"
    link.symlink_to(link)
    with pytest.raises(ValueError, match="leads nowhere"):
        inside(folders[0], "loop")


def test_the_folder_itself_may_be_a_link_as_to_another_disk(folders: tuple[Path, Path]) -> None:
    folder, other = folders
    (folder / "state").symlink_to(other)
    assert inside(folder / "state", "Counter_0") == folder / "state" / "Counter_0"
    (other / "within").symlink_to(other / "Counter_0")
    assert inside(folder / "state", "within") == folder / "state" / "within"

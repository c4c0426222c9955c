"""The copy of the user's code that a TaskManager runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_pipeline.common.code.engine_code import ENGINE_FOLDER
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.streams.engine.code_snapshot import snapshot


def write(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


def test_code_is_copied_and_all_else_is_linked(tmp_path: Path) -> None:
    root, into = tmp_path / "src", tmp_path / "code"
    write(root, "shop.py", "rates.csv", "acme/deep/item.py", "acme/deep/model.bin")
    write(root, "data/large.bin", ".git/config", "venv/pyvenv.cfg", "venv/lib/six.py")
    write(root, "env/conda-meta/history", "env/lib/six.py")
    (copy,) = snapshot([root], into)
    for name in ("shop.py", "acme/deep/item.py"):
        (root / name).write_text("later")
        assert (copy / name).read_text() == name
    for name in (
        "rates.csv",
        "acme/deep/model.bin",
        "data/large.bin",
        "venv/lib/six.py",
        "env/lib/six.py",
    ):
        (root / name).write_text("later")
        assert (copy / name).read_text() == "later"
    assert (copy / "data").is_symlink()
    assert not (copy / "acme").is_symlink()


def test_a_copy_replaces_the_former_one_and_not_what_it_links_to(tmp_path: Path) -> None:
    root, into = tmp_path / "src", tmp_path / "code"
    write(root, "old.py", "data/large.bin")
    snapshot([root], into)
    (root / "old.py").rename(root / "new.py")
    (copy,) = snapshot([root], into)
    assert sorted(path.name for path in copy.iterdir()) == ["data", "new.py"]
    assert (root / "data/large.bin").read_text() == "data/large.bin"


def test_the_copy_may_be_in_the_folder_itself(tmp_path: Path) -> None:
    write(tmp_path, "shop.py")
    for _ in range(2):
        (copy,) = snapshot([tmp_path], tmp_path / ".work" / "code")
    assert (copy / "shop.py").is_file()
    (visible,) = snapshot([tmp_path], tmp_path / "code")
    assert sorted(path.name for path in visible.iterdir()) == [".work", "shop.py"]


def test_a_folder_that_is_not_there_stays(tmp_path: Path) -> None:
    assert snapshot([tmp_path / "none"], tmp_path / "code") == (tmp_path / "none",)


def test_the_engine_is_not_copied(tmp_path: Path) -> None:
    (copy,) = snapshot([ENGINE_FOLDER.parent], tmp_path / "code")
    assert (copy / "tests").is_dir()
    assert not (copy / "streams").exists()
    assert not (copy / "kafka_pipeline").exists()


def test_links_that_lead_in_a_circle_are_links_in_the_copy(tmp_path: Path) -> None:
    root = tmp_path / "src"
    write(root, "shop.py")
    (root / "again").symlink_to(root)
    (copy,) = snapshot([root], tmp_path / "code")
    assert (copy / "again").is_symlink()


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "src", "shop.py")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", full)
    with pytest.raises(UnavailableError, match="No space"):
        snapshot([tmp_path / "src"], tmp_path / "code")


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(ENGINE_FOLDER.parent)
    (copy,) = snapshot([tmp_path / "current"], tmp_path / "code")
    assert (copy / "tests").is_dir()
    assert not (copy / "streams").exists()

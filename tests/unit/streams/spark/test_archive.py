"""The archive for executors, read with an interpreter that has nothing else of the project."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from zipfile import ZipFile

import pytest

from kafka_pipeline.streams.spark.start import write_archive


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"NAME = {name!r}\n")


def shipped(tmp_path: Path, *python_path: Path, modules: tuple[str, ...] = ()) -> set[str]:
    """Return what is in the archive in addition to the engine."""
    file = tmp_path / "archive.zip"
    count = write_archive(file, python_path, modules)
    names = ZipFile(file).namelist()
    assert len(names) == len(set(names)) == count
    return {name for name in names if not name.startswith("kafka_pipeline/")}


def test_pipeline_thread_can_be_imported_from_the_archive_alone(tmp_path: Path) -> None:
    archive = tmp_path / "archive.zip"
    write_archive(archive)
    program = (
        "import kafka_pipeline.taskmanager.pipeline_thread as t; "
        "from kafka_pipeline import Processor; print(t.__file__)"
    )
    environment = os.environ | {"PYTHONPATH": str(archive)}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    imported = archive / "kafka_pipeline" / "taskmanager" / "pipeline_thread.py"
    assert answer.stdout.strip() == str(imported)


def test_python_files_of_the_search_path_are_shipped_and_nothing_else(tmp_path: Path) -> None:
    code = tmp_path / "code"
    make(code, "shop.py", "package/__init__.py", "package/deep/part.py", "namespace/part.py")
    make(code, "config.yaml", "data.csv", ".hidden/no.py", "package/__pycache__/no.py")
    make(code, "env/pyvenv.cfg", "env/lib/no.py")
    wanted = {"shop.py", "package/__init__.py", "package/deep/part.py", "namespace/part.py"}
    assert shipped(tmp_path, code) == wanted


def test_first_folder_of_the_search_path_counts_and_the_engine_before_it(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    make(first, "shop.py", "common/__init__.py", "kafka_pipeline/__init__.py")
    make(second, "shop.py", "other.py")
    (second / "shop.py").write_text("NAME = 'second'\n")
    wanted = {"shop.py", "other.py", "common/__init__.py"}
    assert shipped(tmp_path, first, second) == wanted
    with ZipFile(tmp_path / "archive.zip") as archive:
        assert archive.read("shop.py") == b"NAME = 'shop.py'\n"
        assert b"NAME" not in archive.read("kafka_pipeline/__init__.py")


def test_packages_of_listed_modules_are_shipped_from_wherever_they_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "installed"
    make(code, "listed_one.py", "listed_two/__init__.py", "listed_two/part.py", "not_listed.py")
    monkeypatch.syspath_prepend(code)
    modules = ("listed_one", "listed_two.part", "sys", "nowhere_at_all")
    wanted = {"listed_one.py", "listed_two/__init__.py", "listed_two/part.py"}
    assert shipped(tmp_path, modules=modules) == wanted


def test_package_with_compiled_modules_is_left_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "installed"
    make(code, "compiled_one/__init__.py", f"compiled_one/fast{EXTENSION_SUFFIXES[0]}")
    monkeypatch.syspath_prepend(code)
    assert shipped(tmp_path, modules=("compiled_one.part",)) == set()

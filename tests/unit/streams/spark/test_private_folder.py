"""Folders for Spark's JVM are deleted later if it was killed, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_pipeline.streams.spark.private_folder import private_folder

MADE_ELSEWHERE = """
import sys
from kafka_pipeline.streams.spark.private_folder import private_folder
folder = private_folder(sys.argv[1])
(folder / "spilled").write_text("rows")
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process, which has a folder."""
    command = [sys.executable, "-c", MADE_ELSEWHERE, str(tmp_path)]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def made_by(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    os.utime(folder, (0, 0))
    return folder


def test_a_folder_is_deleted_once_its_process_was_killed(
    other: subprocess.Popen[str], tmp_path: Path
) -> None:
    with other:
        folder = made_by(other)
        own = private_folder(str(tmp_path))
        assert own.stat().st_mode & 0o077 == 0
        os.utime(own, (0, 0))
        private_folder(str(tmp_path))
        assert (folder / "spilled").is_file()
        other.kill()
    private_folder(str(tmp_path))
    assert not folder.exists()
    assert own.is_dir()


def test_what_is_new_or_of_something_else_stays(tmp_path: Path) -> None:
    new, linked, link = (tmp_path / name for name in ("pipeline-jvm-new", "data", "pipeline-jvm-l"))
    new.mkdir()
    linked.mkdir()
    link.symlink_to(linked)
    os.utime(linked, (0, 0))
    (tmp_path / "pipeline-jvm-file").write_text("")
    private_folder(str(tmp_path))
    assert new.is_dir()
    assert linked.is_dir()
    assert link.is_symlink()

"""The failing disk: which calls fail, for whom, and until when."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.failing_disk import FailingDisk, NoFailingDiskError

USES = """
import os, sys
folder = sys.argv[1]
open_before = os.open(folder + "/file", os.O_RDWR)
print("ready", flush=True)
sys.stdin.readline()
def attempt(use):
    try:
        use()
    except OSError as error:
        return error.errno
    return 0
print(
    attempt(lambda: os.pread(open_before, 1, 0)),
    attempt(lambda: os.close(os.open(folder + "/file", os.O_RDONLY))),
    attempt(lambda: os.pwrite(open_before, b"x", 0)),
    attempt(lambda: os.fsync(open_before)),
    attempt(lambda: open(folder + "/new", "w").close()),
    attempt(lambda: os.rename(folder + "/file", folder + "/moved")),
    attempt(lambda: os.rename(folder + "/moved", folder + "/file")),
)
"""


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    for name in ("disk", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"content")
    try:
        return FailingDisk(tmp_path / "disk", tmp_path / "library")
    except NoFailingDiskError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("error", "errors"),
    [
        (errno.EIO, [errno.EIO] * 6),
        (errno.EROFS, [0, 0] + [errno.EROFS] * 4),
        (0, [0] * 6),
    ],
)
def test_only_what_the_error_is_about_fails_and_only_on_the_disk(
    disk: FailingDisk, tmp_path: Path, error: int, errors: list[int]
) -> None:
    def used(folder: str) -> list[int]:
        with subprocess.Popen(
            [sys.executable, "-c", USES, tmp_path / folder],
            env=os.environ | disk.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if error:
                disk.fail(error)
            said, _ = process.communicate("\n", timeout=60)
        disk.mend()
        return list(map(int, said.split()))

    # What could not be moved away cannot be moved back either.
    assert used("disk")[:6] == errors
    assert used("elsewhere") == [0] * 7

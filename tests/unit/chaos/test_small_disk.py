"""The small disk: where mounting is not possible, only the error is tested."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.small_disk import NoSmallDiskError, fill, free, small_disk

KBYTES = 256


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    mounted = small_disk(tmp_path / "disk", KBYTES)
    try:
        path = mounted.__enter__()
    except NoSmallDiskError as error:
        pytest.skip(str(error))
    try:
        yield path
    finally:
        mounted.__exit__(None, None, None)


def test_disk_has_the_size_that_was_asked_for(disk: Path) -> None:
    assert os.path.ismount(disk)
    assert shutil.disk_usage(disk).total == KBYTES * 1024


def test_full_disk_takes_no_byte_more_until_it_is_freed(disk: Path) -> None:
    (disk / "before").write_bytes(b"x" * 1000)
    fill(disk)
    assert shutil.disk_usage(disk).free == 0
    with pytest.raises(OSError, match="No space") as caught:
        (disk / "more").write_bytes(b"x")
    assert caught.value.errno == errno.ENOSPC
    free(disk)
    (disk / "more").write_bytes(b"x" * 1000)
    assert (disk / "before").read_bytes() == b"x" * 1000


def test_disk_can_be_filled_again(disk: Path) -> None:
    for _ in range(2):
        fill(disk)
        fill(disk)
        assert shutil.disk_usage(disk).free == 0
        free(disk)
        assert shutil.disk_usage(disk).free > 0


def test_freeing_what_was_not_filled_does_nothing(disk: Path) -> None:
    free(disk)


def test_disk_is_gone_at_the_end_although_a_file_is_open(disk: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with small_disk(other, KBYTES):
        file = (other / "open").open("wb")
    assert not os.path.ismount(other)
    assert list(other.iterdir()) == []
    file.close()


def test_missing_right_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoSmallDiskError, match="only root"), small_disk(tmp_path, KBYTES):
        pass


def test_missing_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSmallDiskError, match="no mount command"), small_disk(tmp_path, KBYTES):
        pass

"""A disk that is small enough to fill: a tmpfs, mounted while a test runs."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILLER = ".filler"
_CHUNK_BYTES = 65_536
_COMMAND_TIMEOUT_S = 30


class NoSmallDiskError(Exception):
    """This machine does not allow mounting; the caller skips what needs a small disk."""


@contextmanager
def small_disk(path: Path, kbytes: int) -> Iterator[Path]:
    """Mount a disk of `kbytes` at `path`, creating the folder if missing; yields `path`.

    At the end, the disk is unmounted with all its content, even while files on it are open.
    Raises `NoSmallDiskError` if mounting is not possible.
    """
    if os.geteuid() != 0:
        raise NoSmallDiskError("only root may mount a disk")
    for command in ("mount", "umount"):
        if shutil.which(command) is None:
            raise NoSmallDiskError(f"there is no {command} command")
    path.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={kbytes}k", "small_disk", str(path))
    try:
        yield path
    finally:
        _run("umount", "-l", str(path))


def fill(path: Path) -> None:
    """Fill the disk at `path` with one file, to the last byte."""
    descriptor = os.open(path / _FILLER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        while True:
            os.write(descriptor, bytes(_CHUNK_BYTES))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(descriptor)


def free(path: Path) -> None:
    """Remove the file that `fill` wrote, if there is one."""
    (path / _FILLER).unlink(missing_ok=True)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSmallDiskError(f"{command[0]} does not work: {error}") from error
    if done.returncode != 0:
        raise NoSmallDiskError(f"{command[0]} is refused: {done.stderr.strip()}")

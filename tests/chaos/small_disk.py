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
    """This machine does not let us mount; the caller leaves out what needs a small disk."""


@contextmanager
def small_disk(path: Path, kbytes: int) -> Iterator[Path]:
    """Make `path`, made if missing, a disk of `kbytes`; yields `path`.

    At the end the disk is taken off with all that is on it, even while files are open there.
    Raises `NoSmallDiskError` where mounting is not possible.
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
    """Use up what is free on the disk at `path`, to the last byte, by one file."""
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
    """Remove what `fill` wrote; nothing if it did not."""
    (path / _FILLER).unlink(missing_ok=True)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSmallDiskError(f"{command[0]} does not work: {error}") from error
    if done.returncode != 0:
        raise NoSmallDiskError(f"{command[0]} is refused: {done.stderr.strip()}")

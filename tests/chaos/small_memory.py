"""Memory that is small enough to run out of: a control group, which processes enter for a while."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_MOUNT = Path("/sys/fs/cgroup")
_NAME = "small_memory"
_REMOVAL_TIMEOUT_S = 30.0
_POLL_S = 0.05


class NoSmallMemoryError(Exception):
    """This machine does not allow control groups; the caller skips what needs one."""


class _Place(NamedTuple):
    """Where a group can be made, and which group processes go back to."""

    parent: Path
    own: Path
    limit_file: str


@contextmanager
def small_memory(processes: Callable[[], set[int]], limit_bytes: int) -> Iterator[None]:
    """Limit what processes, and those that they start, take together from now on.

    `processes` returns their ids; it is asked until nothing new was started. If the memory runs
    out, the kernel ends the largest one. What they had before does not count with version 1 of
    control groups. At the end, those that are left go back to the group of this process.

    Raises `NoSmallMemoryError` if this machine does not allow it.
    """
    place = _place()
    group = place.parent / f"{_NAME}_{os.getpid()}"
    try:
        group.mkdir()
        (group / place.limit_file).write_text(str(limit_bytes))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise NoSmallMemoryError(f"no control group can be made: {error}") from error
    try:
        inside: set[int] = set()
        while new := processes() - inside:
            _move(new, group)
            inside |= new
        yield
    finally:
        _remove(group, place.own)


def _place() -> _Place:
    """Return where groups that limit memory are: in this process's own, or one above it."""
    lines = _text(Path("/proc/self/cgroup")).splitlines()
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2].strip("/") for line in lines}
    if "memory" in paths:
        own = _MOUNT / "memory" / paths["memory"]
        return _Place(own, own, "memory.limit_in_bytes")
    own = _MOUNT / paths.get("", "")
    # With version 2, a group with processes has no groups that limit memory.
    for parent in own.parents:
        if "memory" in _text(parent / "cgroup.subtree_control").split():
            return _Place(parent, own, "memory.max")
        if parent == _MOUNT:
            break
    raise NoSmallMemoryError("no control group above this process limits memory")


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def _move(processes: set[int], group: Path) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(str(pid))


def _remove(group: Path, own: Path) -> None:
    """Move what is left in a group to another one, and remove it once all of it has moved."""
    deadline_s = time.monotonic() + _REMOVAL_TIMEOUT_S
    while True:
        _move({int(line) for line in _text(group / "cgroup.procs").split()}, own)
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() >= deadline_s:
                raise
            time.sleep(_POLL_S)
        else:
            return

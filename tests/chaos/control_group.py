"""Processes that get little memory or CPU time: a control group, which they enter for a while."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_MOUNT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_REMOVAL_TIMEOUT_S = 30.0
_POLL_S = 0.05


class NoControlGroupError(Exception):
    """This machine does not allow control groups; the caller skips what needs one."""


class Limit(NamedTuple):
    """What a controller is to limit, in the files of both versions of control groups."""

    controller: str
    version_1: tuple[str, str]
    version_2: tuple[str, str]


def memory(limit_bytes: int) -> Limit:
    """Limit memory; if it runs out, the kernel ends the largest process.

    What processes had before they entered does not count with version 1 of control groups.
    """
    number = str(limit_bytes)
    return Limit("memory", ("memory.limit_in_bytes", number), ("memory.max", number))


def cpu(share: float) -> Limit:
    """Limit CPU time to a share of one core, above 0."""
    quota = str(round(share * _PERIOD_US))
    return Limit("cpu", ("cpu.cfs_quota_us", quota), ("cpu.max", f"{quota} {_PERIOD_US}"))


class _Place(NamedTuple):
    """Where a group can be made, which group processes go back to, and what to write where."""

    parent: Path
    own: Path
    setting: tuple[str, str]


@contextmanager
def limited(processes: Callable[[], set[int]], limit: Limit) -> Iterator[Callable[[], int]]:
    """Limit what processes, and those that they start, take together from now on.

    Gives a function that says how many of them the kernel has ended, as memory ran out.
    `processes` returns their ids; it is asked until nothing new was started. At the end, those that
    are left go back to the group of this process.

    Raises `NoControlGroupError` if this machine does not allow it.
    """
    place = _place(limit)
    group = place.parent / f"limited_{limit.controller}_{os.getpid()}"
    file, value = place.setting
    try:
        group.mkdir()
        (group / file).write_text(value)
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise NoControlGroupError(f"no control group can be made: {error}") from error
    try:
        inside: set[int] = set()
        while new := processes() - inside:
            _move(new, group)
            inside |= new
        yield lambda: _ended(group)
    finally:
        _remove(group, place.own)


def _ended(group: Path) -> int:
    found = _text(group / "memory.oom_control") + _text(group / "memory.events")
    (count,) = re.findall(r"^oom_kill (\d+)$", found, re.MULTILINE)
    return int(count)


def _place(limit: Limit) -> _Place:
    """Return where groups with this limit are: in this process's own, or one above it."""
    lines = _text(Path("/proc/self/cgroup")).splitlines()
    paths = {line.split(":", 2)[1]: line.split(":", 2)[2].strip("/") for line in lines}
    for controllers, path in paths.items():
        if limit.controller in controllers.split(","):
            own = _MOUNT / controllers / path
            return _Place(own, own, limit.version_1)
    own = _MOUNT / paths.get("", "")
    # With version 2, a group with processes has no groups that limit anything.
    for parent in own.parents:
        if limit.controller in _text(parent / "cgroup.subtree_control").split():
            return _Place(parent, own, limit.version_2)
        if parent == _MOUNT:
            break
    raise NoControlGroupError(f"no control group above this process limits {limit.controller}")


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

"""How a worker process ended: its signal or exit code, where it was, and which calls it was in."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafka_pipeline.common.code.fatal_stacks import fatal_stack
from kafka_pipeline.common.code.user_frames import StackLine, place_in_stack
from kafka_pipeline.common.protocol.suspects import Death
from kafka_pipeline.taskmanager.marks import Mark

_MEMORY_EVENTS = "/sys/fs/cgroup{}/memory.events"
_VM_STATISTICS = Path("/proc/vmstat")
_GB = 1e9


class Ended(NamedTuple):
    """What the kernel says about a process that has ended."""

    status: int
    """As `os.wait4` returns it."""
    peak_bytes: int
    """The most memory that it had."""
    ran_out: bool
    """Whether the kernel has ended a process for want of memory meanwhile."""


def death_of(ended: Ended, stacks: str, marks: Sequence[Mark]) -> Death:
    """Return how a process ended, with the calls that were in progress.

    `stacks` is what `faulthandler` has written, "" for an end without a fatal signal. If it names
    the thread that got the signal, only the calls on that thread count.
    """
    found = fatal_stack(stacks)
    if found is not None:
        marks = [mark for mark in marks if mark.thread == found.thread]
    lines = () if found is None else found.lines
    return Death(_how(ended, lines), tuple((mark.task, mark.call) for mark in marks))


def _how(ended: Ended, lines: Sequence[StackLine]) -> str:
    if not os.WIFSIGNALED(ended.status):
        return f"exit code {os.waitstatus_to_exitcode(ended.status)}"
    number = os.WTERMSIG(ended.status)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    peak = f"it had up to {ended.peak_bytes / _GB:.1f} GB"
    if number == signal.SIGKILL and ended.ran_out:
        return f"the kernel ended it, as memory ran out; {peak}"
    if number == signal.SIGKILL:
        return f"SIGKILL from outside; {peak}"
    return name + place_in_stack(lines)


def kills_for_want_of_memory() -> int:
    """Return how often the kernel has ended a process for want of memory, as far as one can see.

    The counts of the control group and of the host are added: only a change means anything.
    """
    return _of_control_group() + _count(_VM_STATISTICS)


def _of_control_group() -> int:
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return 0
    own = next((line[3:] for line in lines if line.startswith("0::")), "")
    return _count(Path(_MEMORY_EVENTS.format("" if own == "/" else own)))


def _count(path: Path) -> int:
    """Return the `oom_kill` of a file, 0 if it has none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

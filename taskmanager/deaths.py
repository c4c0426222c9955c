"""Describes the end of a worker process: signal or exit code, place, and calls in progress."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafka_pipeline.common.code.fatal_stacks import fatal_stack
from kafka_pipeline.common.code.user_frames import StackLine, place_in_stack
from kafka_pipeline.common.protocol.suspects import Death
from kafka_pipeline.taskmanager.marks import MarkedCall

_MEMORY_EVENTS = "/sys/fs/cgroup{}/memory.events"
_VM_STATISTICS = Path("/proc/vmstat")
_GB = 1e9


class Ended(NamedTuple):
    """The kernel's facts about a process that has ended."""

    status: int
    """The status from `os.wait4`."""
    peak_bytes: int
    """Its peak memory."""
    ran_out: bool
    """Whether the kernel has killed a process for lack of memory meanwhile."""


def death_of(ended: Ended, stacks: str, marks: Sequence[MarkedCall]) -> Death:
    """Return how a process ended, with the calls that were in progress.

    `stacks` is the output of `faulthandler`, "" without a fatal signal. If it names the thread that
    got the signal, only the calls on that thread count.
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
    """Return how many processes the kernel has killed for lack of memory, as far as visible.

    Counts of the control group and of the host are added, so only a change has a meaning.
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
    """Return the `oom_kill` in a file, 0 if it has none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

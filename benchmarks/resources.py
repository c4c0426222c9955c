"""CPU time and memory of all processes that daemons started. Linux only."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from kafka_pipeline.admin.daemons import session_members

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)


def cpu_s(sessions: Iterable[int]) -> float:
    """Return the CPU time of all processes of these sessions so far, in seconds.

    Children that have ended count once their parents have collected them.
    """
    ticks = 0
    for session in sessions:
        for pid in session_members(session):
            with suppress(FileNotFoundError, ProcessLookupError):  # It has just ended.
                ticks += _ticks(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    return ticks / _TICKS_PER_S


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of one process so far, in seconds."""
    return _ticks(Path(f"/proc/{pid}/stat").read_text(errors="replace")) / _TICKS_PER_S


def memory_mb(sessions: Iterable[int]) -> float:
    """Return the memory of all processes; what several of them share counts once.

    It is their proportional set size (PSS): workers are forked, and share what was loaded before.
    """
    kilobytes = 0
    for session in sessions:
        for pid in session_members(session):
            with suppress(FileNotFoundError, ProcessLookupError):
                found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
                # A process that has ended, and was not collected yet, has no memory.
                kilobytes += int(found[1]) if found else 0
    return kilobytes * 1.024 / 1000


def _ticks(stat: str) -> int:
    """Return the clock ticks in /proc/<pid>/stat: the process's own and its ended children's."""
    # After the name: state, ppid, …; utime, stime, cutime and cstime are fields 14 to 17 (proc(5)).
    return sum(map(int, stat.rpartition(")")[2].split()[11:15]))


class PeakMemory:
    """Samples the memory of sessions in a separate thread while it is entered."""

    def __init__(self, sessions: Iterable[int], interval_s: float = 1) -> None:
        self._sessions = list(sessions)
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory", daemon=True)
        self.mb = 0.0
        """The largest sum so far."""

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while True:
            self.mb = max(self.mb, memory_mb(self._sessions))
            if self._is_over.wait(self._interval_s):
                return

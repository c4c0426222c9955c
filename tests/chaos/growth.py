"""What the processes of a cluster use over time. One that lives long must not need ever more."""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from kafka_pipeline.admin.daemons import session_members

INTERVAL_S = 10.0
SETTLED_S = 300.0
"""At this age, caches are full and code is compiled. Processes that ended earlier are not shown."""
SPAN_S = 120.0
"""The figures are medians of this time."""
_PSS = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)
_THREADS = re.compile(r"^Threads:\s+(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Use:
    """What a process uses; memory that it shares counts in part (PSS)."""

    memory_mb: float
    threads: float
    files: float


@dataclass(slots=True)
class Curve:
    """The uses of a process, in the order of time, each with the process's age in seconds."""

    process: str
    points: list[tuple[float, Use]] = field(default_factory=list)

    @property
    def age_s(self) -> float:
        """How long the process was seen."""
        return self.points[-1][0]

    def around(self, start_s: float) -> Use:
        """Return the medians of `SPAN_S` from an age on. There must be a point in it."""
        uses = [astuple(use) for age, use in self.points if start_s <= age <= start_s + SPAN_S]
        return Use(*map(statistics.median, zip(*uses, strict=True)))


def use_of(pid: int) -> Use:
    """Return what a process uses now. Raises OSError if it has ended."""
    process = Path(f"/proc/{pid}")
    memory = _PSS.search((process / "smaps_rollup").read_text())
    threads = _THREADS.search((process / "status").read_text())
    if memory is None or threads is None:
        raise ProcessLookupError(pid)
    return Use(int(memory[1]) * 1.024e-3, int(threads[1]), len(list((process / "fd").iterdir())))


class Growth:
    """Watches all processes of the sessions, which have names, while it is entered."""

    def __init__(self, sessions: Callable[[], Mapping[str, int]]) -> None:
        self._sessions = sessions
        self._curves: dict[int, Curve] = {}
        self._first_s: dict[int, float] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at them at each interval."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(INTERVAL_S):
                self.look(time.monotonic())

        thread = threading.Thread(target=watch, name="growth", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def look(self, now_s: float) -> None:
        """Look at all processes once."""
        for name, session in self._sessions().items():
            for pid in session_members(session):
                # A process may end at any time.
                with suppress(OSError):
                    command = Path(f"/proc/{pid}/comm").read_text().strip()
                    curve = self._curves.setdefault(pid, Curve(f"{name}, {command} {pid}"))
                    age_s = now_s - self._first_s.setdefault(pid, now_s)
                    curve.points.append((age_s, use_of(pid)))

    def curves(self) -> list[Curve]:
        """Return those of processes that have lived long enough, the oldest first."""
        long = [each for each in self._curves.values() if each.points and _is_long(each)]
        return sorted(long, key=lambda each: -each.age_s)


def _is_long(curve: Curve) -> bool:
    return curve.age_s >= SETTLED_S + 2 * SPAN_S


def growth_table(curves: Sequence[Curve]) -> str:
    """Return what each process used once it had settled and at last, as Markdown."""
    lines = [
        f"| process | age | memory after {SETTLED_S:.0f} s | at last | threads | at last |"
        " files | at last |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for curve in curves:
        then, now = curve.around(SETTLED_S), curve.around(curve.age_s - SPAN_S)
        pairs = zip(astuple(then), astuple(now), strict=True)
        figures = " | ".join(f"{first:.0f} | {last:.0f}" for first, last in pairs)
        lines.append(f"| {curve.process} | {curve.age_s:.0f} s | {figures} |")
    return "\n".join(lines)


def to_json(curves: Iterable[Curve]) -> list[dict[str, Any]]:
    """Return plain values for `json.dumps`: points are age, MB, threads and files."""
    return [
        {
            "process": curve.process,
            "points": [[round(age_s, 1), *astuple(use)] for age_s, use in curve.points],
        }
        for curve in curves
    ]

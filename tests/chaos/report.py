"""The findings of a run: a line per event, a table and JSON."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.numbered_results import Tally

_NAP_S = 0.2
_STANDSTILL_S = 1.0


class Timeline:
    """Prints events with the seconds since the start, and keeps them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Add a line."""
        line = f"{time.monotonic() - self._started:8.1f} s  {text}"
        self.lines.append(line)
        print(line, flush=True)


class StandstillWatch:
    """Detects when the whole machine pauses, as a virtual machine does when its host stops it.

    No engine can recover faster than such a pause, so a table that ignored it would mislead.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.seconds = 0.0
        """The total length of pauses since the start."""
        self._say = timeline.say
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(_NAP_S)
            now = time.monotonic()
            still_s, before = now - before - _NAP_S, now
            if still_s >= _STANDSTILL_S:
                self.seconds += still_s
                self._say(f"the machine stood still for {still_s:.1f} s")


@dataclass(slots=True)
class Row:
    """All rounds of one fault."""

    fault: str
    rounds: int = 0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)
    """The times from each break until records of all keys came out again."""
    still_s: float = 0.0
    """The total length of pauses of the machine meanwhile."""
    failures: list[str] = field(default_factory=list)
    skipped: str = ""

    def add(self, tally: Tally, seconds: Iterable[float]) -> None:
        """Count a round."""
        self.rounds += 1
        self.lost += tally.lost
        self.repeated += tally.repeated
        self.reordered += tally.reordered
        self.wrong += tally.wrong
        self.seconds += seconds

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, repeated or reordered, and all required conditions held."""
        return not (self.has_wrong_data or self.failures)

    @property
    def has_wrong_data(self) -> bool:
        """Whether results are lost, repeated, reordered or wrong."""
        return bool(self.lost or self.repeated or self.reordered or self.wrong)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`."""
        return {
            "fault": self.fault,
            "rounds": self.rounds,
            "lost": self.lost,
            "repeated": self.repeated,
            "reordered": self.reordered,
            "wrong": self.wrong,
            "recovery_median_s": statistics.median(self.seconds) if self.seconds else None,
            "recovery_max_s": max(self.seconds, default=None),
            "machine_stood_still_s": round(self.still_s, 1),
            "failures": self.failures,
            "skipped": self.skipped,
        }


def table(rows: Iterable[Row]) -> str:
    """Return the rows as Markdown, as docs/reliability.md shows them."""
    lines = [
        "| fault | rounds | failed | lost | repeated | reordered | wrong |"
        " time to recover: median | max | machine stood still |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row.skipped:
            lines.append(f"| {row.fault} | skipped: {row.skipped} | | | | | | | | |")
            continue
        median = f"{statistics.median(row.seconds):.1f} s" if row.seconds else ""
        longest = f"{max(row.seconds):.1f} s" if row.seconds else ""
        still = f"{row.still_s:.0f} s" if row.still_s else ""
        lines.append(
            f"| {row.fault} | {row.rounds} | {len(row.failures)} "
            f"| {row.lost} | {row.repeated} | {row.reordered} | {row.wrong} "
            f"| {median} | {longest} | {still} |"
        )
    return "\n".join(lines)

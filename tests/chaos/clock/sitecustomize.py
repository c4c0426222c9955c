"""Makes the wall clock of a Python process jump; its folder stands on the process's PYTHONPATH.

Lets a sabotage in, too, if `CHAOS_BROKEN` names one (`tests/chaos/sabotage.py`): of all modules
that have this name, Python imports only one.

`CHAOS_CLOCK_FILE` names a file with the seconds (a decimal number, may be negative) by which
`time.time` and `time.time_ns` are wrong. The file may change at any time: it is read again after
100 ms, and in a forked child at once. A file that is missing means no shift; one that holds no
number, as while it is written, leaves the shift as it was. Monotonic clocks go on as they are, and
so do those that are read in C: librdkafka's, and `datetime`'s, whose class pandas must find as it
was built for.
"""

from __future__ import annotations

import math
import os
import time

VARIABLE = "CHAOS_CLOCK_FILE"
READ_EVERY_S = 0.1

_true_time = time.time
_true_time_ns = time.time_ns
_monotonic = time.monotonic


class _Shift:
    """The seconds in a file, read as often as needed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seconds = 0.0
        self._read_at_s = -math.inf

    def seconds(self) -> float:
        """Return by how much the clock is wrong."""
        now_s = _monotonic()
        if now_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = now_s
            self._seconds = self._read()
        return self._seconds

    def forget(self) -> None:
        """Read the file at the next look at the clock."""
        self._read_at_s = -math.inf

    def _read(self) -> float:
        try:
            with open(self._path, encoding="ascii") as file:
                seconds = float(file.read())
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError):
            return self._seconds
        return seconds if math.isfinite(seconds) else self._seconds


def _install(shift: _Shift) -> None:
    time.time = lambda: _true_time() + shift.seconds()
    time.time_ns = lambda: _true_time_ns() + round(shift.seconds() * 1_000_000_000)
    os.register_at_fork(after_in_child=shift.forget)


if os.environ.get(VARIABLE):
    _install(_Shift(os.environ[VARIABLE]))

if os.environ.get("CHAOS_BROKEN"):
    # Here, since it imports the engine, which may be missing where there is no sabotage.
    from tests.chaos.sabotage import sabotages

    sabotages()[os.environ["CHAOS_BROKEN"]].install()

"""Makes a Python process's wall clock jump, if this folder is on the process's PYTHONPATH.

It also installs the sabotage that `CHAOS_BROKEN` names, if any (`tests/chaos/sabotage.py`), because
Python imports only one module with this name.

`CHAOS_CLOCK_FILE` names a file that holds the error of `time.time` and `time.time_ns` in seconds: a
decimal number, which may be negative. The file may change at any time: it is read again after
100 ms, and at once in a forked child. A missing file means no shift. A file without a number, such
as one that is just being written, leaves the shift unchanged. Monotonic clocks are not affected.
Nor are clocks that are read in C: that of librdkafka, and that of `datetime`, whose class pandas
must find as it was built for.
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
        """Return the present error of the clock."""
        now_s = _monotonic()
        if now_s - self._read_at_s >= READ_EVERY_S:
            self._read_at_s = now_s
            self._seconds = self._read()
        return self._seconds

    def forget(self) -> None:
        """Make the next look at the clock read the file."""
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
    # Imported here, since it imports the engine, which may be missing without a sabotage.
    from tests.chaos.sabotage import sabotages

    sabotages()[os.environ["CHAOS_BROKEN"]].install()

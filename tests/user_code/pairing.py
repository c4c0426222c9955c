"""A processor of two inputs that keeps state, for the chaos harness."""

from __future__ import annotations

from pathlib import Path

from kafka_pipeline import Processor, ProcessorContext, Record, RecordRejectedError
from tests.user_code.wild import misbehave

Ranges = list[list[int]]
"""Numbers as ranges, `[first, last]` each, which do not meet."""
_COUNTS, _SUMS = "counts", "sums"


class Pairing(Processor):
    """Forwards `3 * base + n` for a key's n-th record once both of its results have come.

    One input has `n` (`count`), the other `base + n + 1` (`sum` of `base + n`). The numbers that
    wait for the other one are kept in the store `Waiting`, under the key of the record.

    Keys that begin with "gated" are rejected as long as the file `gate` does not exist. For the
    keys of `misbehave`, it misbehaves.
    """

    def __init__(self, base: int, gate: str, may_hang: str) -> None:
        self._base = base
        self._gate = Path(gate)
        self._may_hang = Path(may_hang)

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self._waiting = context.get_state_store("Waiting")

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        if record.key.startswith(b"gated") and not self._gate.exists():
            raise RecordRejectedError("the gate is shut")
        misbehave(record.key, self._may_hang)
        number = int(record.value)
        mine, other = _COUNTS, _SUMS
        if number > self._base:
            number -= self._base + 1
            mine, other = other, mine
        waiting: dict[str, Ranges] = self._waiting.get(record.key) or {_COUNTS: [], _SUMS: []}
        if _index(waiting[mine], number) is not None:
            raise RecordRejectedError("this result has come before")
        is_pair = _take(waiting[other], number)
        if is_pair:
            self.context.forward(record.with_value(b"%d" % (3 * self._base + number)))
        else:
            _add(waiting[mine], number)
        if any(waiting.values()):
            self._waiting.put(record.key, waiting)
        else:
            self._waiting.delete(record.key)


def _index(ranges: Ranges, number: int) -> int | None:
    """Return the place of the range with a number; `None` if there is none."""
    return next((at for at, (first, last) in enumerate(ranges) if first <= number <= last), None)


def _add(ranges: Ranges, number: int) -> None:
    """Add a number. Usually it follows the largest one, as records of a key come in order."""
    if ranges and ranges[-1][1] == number - 1:
        ranges[-1][1] = number
    else:
        ranges.append([number, number])


def _take(ranges: Ranges, number: int) -> bool:
    """Remove a number; return whether it was there."""
    at = _index(ranges, number)
    if at is None:
        return False
    first, last = ranges[at]
    parts = [[first, number - 1], [number + 1, last]]
    ranges[at : at + 1] = [part for part in parts if part[0] <= part[1]]
    return True

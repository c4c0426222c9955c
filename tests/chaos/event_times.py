"""The event times of the writer's records, for a pipeline with windows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

STEP_MS = 10
"""The time between two records of a key, if all keys have the same."""
FAST_STEP_MS = 5
SLOW_STEP_MS = 50
"""The same for the fast keys and for all others. Windows are multiples of all three."""
EPOCH_MS = 1_200_000
_BEGAN_BEFORE_NOW_MS = 5 * 86_400_000
"""Less than the retention of the source, so that Kafka keeps its records."""


class _Pace(NamedTuple):
    """The records of a key in an epoch."""

    first: int
    """The number of the first one."""
    after_ms: int
    """The time from the start of the epoch to the first one, less than a step."""
    step_ms: int


class EventTimes:
    """Times that grow with the numbers of each key, in epochs.

    When all results of an epoch have come that need no later record, the writer begins the next
    one. Its first records close the windows of the former epoch, in every partition, whichever way
    they take. So it is known what must have come, and no record is ever late.

    Epochs are counted from 0. Each begins `EPOCH_MS` after the former one, at a multiple of that.

    In each epoch, some keys may be fast: they have ten times as many records as the others in the
    same time, and the others take turns. If `fast` is `None`, all keys have the same times.
    """

    def __init__(self, keys: Iterable[bytes], fast: Collection[bytes] | None = None) -> None:
        now_ms = int(time.time() * 1000)
        self._began_ms = (now_ms - _BEGAN_BEFORE_NOW_MS) // EPOCH_MS * EPOCH_MS
        self._epochs = [_paces(dict.fromkeys(keys, 0), fast)]

    @property
    def epoch(self) -> int:
        """The epoch in which the writer is."""
        return len(self._epochs) - 1

    @property
    def records_per_ms(self) -> dict[bytes, float]:
        """How many records each key has per ms of event time in this epoch."""
        return {key: 1 / pace.step_ms for key, pace in self._epochs[-1].items()}

    @property
    def longest_step_ms(self) -> int:
        """The time in which every key has a record in this epoch."""
        return max(pace.step_ms for pace in self._epochs[-1].values())

    def begin_epoch(
        self, written: Mapping[bytes, int], fast: Collection[bytes] | None = None
    ) -> None:
        """Begin the next epoch after these numbers."""
        self._epochs.append(_paces(written, fast))

    def next_time(self, key: bytes, number: int) -> int:
        """Return the time of the record with a number in the epoch in which the writer is."""
        pace = self._epochs[-1][key]
        return self.start_of(self.epoch) + pace.after_ms + pace.step_ms * (number - pace.first)

    def start_of(self, epoch: int) -> int:
        """Return the time at which an epoch begins."""
        return self._began_ms + EPOCH_MS * epoch

    def epoch_at(self, time_ms: int) -> int:
        """Return the epoch of a time; raises `ValueError` if it has not begun."""
        epoch = (time_ms - self._began_ms) // EPOCH_MS
        if not 0 <= epoch <= self.epoch:
            raise ValueError(f"{time_ms} is in no epoch")
        return epoch

    def number_at(self, key: bytes, time_ms: int) -> int:
        """Return the number of the first record of a key at a time or after it, in its epoch.

        There may be no record with this number in the epoch. Raises as `epoch_at`.
        """
        epoch = self.epoch_at(time_ms)
        pace = self._epochs[epoch][key]
        return pace.first + -(-(time_ms - self.start_of(epoch) - pace.after_ms) // pace.step_ms)

    def numbers_in(self, key: bytes, start_ms: int, size_ms: int) -> range:
        """Return the numbers of a key in a window to which no record can come any more.

        The size is a multiple of the steps, and the window is within an epoch. Raises as
        `epoch_at`.
        """
        low = self.number_at(key, start_ms)
        high = low + self.most_in(key, self.epoch_at(start_ms), size_ms)
        end = self.end_of(key, self.epoch_at(start_ms))
        return range(low, high if end is None else min(high, end))

    def most_in(self, key: bytes, epoch: int, size_ms: int) -> int:
        """Return how many records of a key a window has, but for the last one of an epoch."""
        return size_ms // self._epochs[epoch][key].step_ms

    def windows_in(self, keys: Iterable[bytes], epoch: int, size_ms: int) -> int:
        """Return how many windows of a former epoch have records of these keys."""
        return max(
            -(-self.count_in(key, epoch) // self.most_in(key, epoch, size_ms)) for key in keys
        )

    def end_of(self, key: bytes, epoch: int) -> int | None:
        """Return the number after the last one of an epoch; `None` if the epoch goes on."""
        return self._epochs[epoch + 1][key].first if epoch < self.epoch else None

    def count_in(self, key: bytes, epoch: int) -> int:
        """Return how many records of a key a former epoch has."""
        return self._epochs[epoch + 1][key].first - self._epochs[epoch][key].first

    def before_epoch(self, key: bytes) -> int:
        """Return the number of the last record of a key in the former epochs; 0 if none."""
        return self._epochs[-1][key].first - 1


def _paces(written: Mapping[bytes, int], fast: Collection[bytes] | None) -> dict[bytes, _Pace]:
    """Return the paces of an epoch after these numbers."""
    if fast is None:
        return {key: _Pace(number + 1, 0, STEP_MS) for key, number in written.items()}
    paces = {}
    for place, (key, number) in enumerate(written.items()):
        step_ms = FAST_STEP_MS if key in fast else SLOW_STEP_MS
        # Several keys have the same times: a lookup of a query in tables takes one call for each.
        turn = step_ms // FAST_STEP_MS * place // len(written)
        paces[key] = _Pace(number + 1, turn * FAST_STEP_MS, step_ms)
    return paces

"""The event times of the writer's records, for a pipeline with windows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

STEP_MS = 10
"""The time between two records of a key."""
EPOCH_MS = 1_200_000
_BEGAN_BEFORE_NOW_MS = 5 * 86_400_000
"""Less than the retention of the source, so that Kafka keeps its records."""


class EventTimes:
    """Times that grow with the numbers of each key, in epochs.

    When all results of an epoch have come that need no later record, the writer begins the next
    one. Its first records close the windows of the former epoch, in every partition, whichever way
    they take. So it is known what must have come, and no record is ever late.

    Epochs are counted from 0. Each begins `EPOCH_MS` after the former one, at a multiple of that.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        now_ms = int(time.time() * 1000)
        self._began_ms = (now_ms - _BEGAN_BEFORE_NOW_MS) // EPOCH_MS * EPOCH_MS
        self._firsts: list[dict[bytes, int]] = [dict.fromkeys(keys, 1)]
        """For each epoch, the number of the first record of each key."""

    @property
    def epoch(self) -> int:
        """The epoch in which the writer is."""
        return len(self._firsts) - 1

    def begin_epoch(self, written: Mapping[bytes, int]) -> None:
        """Begin the next epoch after these numbers."""
        self._firsts.append({key: number + 1 for key, number in written.items()})

    def next_time(self, key: bytes, number: int) -> int:
        """Return the time of the record with a number in the epoch in which the writer is."""
        return self.start_of(self.epoch) + STEP_MS * (number - self._firsts[-1][key])

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
        return self._firsts[epoch][key] + -(-(time_ms - self.start_of(epoch)) // STEP_MS)

    def end_of(self, key: bytes, epoch: int) -> int | None:
        """Return the number after the last one of an epoch; `None` if the epoch goes on."""
        return self._firsts[epoch + 1][key] if epoch < self.epoch else None

    def count_in(self, key: bytes, epoch: int) -> int:
        """Return how many records of a key a former epoch has."""
        return self._firsts[epoch + 1][key] - self._firsts[epoch][key]

    def before_epoch(self, key: bytes) -> int:
        """Return the number of the last record of a key in the former epochs; 0 if none."""
        return self._firsts[-1][key] - 1

"""Punctuations: callbacks that are due at intervals, by stream time or by the wall clock.

A task has two queues, one for each `PunctuationType`. Time comes in as an argument.

    queue = PunctuationQueue()
    start_ms = first_due_ms(PunctuationType.WALL_CLOCK_TIME, 1000, now_ms)
    cancellable = queue.schedule(1000, flush, start_ms)
    queue.punctuate(now_ms, lambda callback, time_ms: callback(time_ms))
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

Punctuator = Callable[[int], None]
"""The callback of a punctuation; its argument is the time at which the punctuation fires."""


class PunctuationType(enum.Enum):
    """The kind of time by which a punctuation is due.

    Stream time is the largest timestamp of the records processed so far; it stands still while
    no record comes.
    """

    STREAM_TIME = "stream time"
    WALL_CLOCK_TIME = "wall-clock time"


class Cancellable(Protocol):
    """A punctuation that was scheduled."""

    def cancel(self) -> None:
        """Never call it again; safe to repeat, and to call from within the callback."""


class _Schedule:
    __slots__ = ("callback", "cancelled", "interval_ms")

    def __init__(self, interval_ms: int, callback: Punctuator) -> None:
        self.interval_ms = interval_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def first_due_ms(
    type_: PunctuationType, interval_ms: int, now_ms: int, start_ms: int | None = None
) -> int:
    """Return when a punctuation that is scheduled now is due for the first time.

    Stream time is aligned to 0, so the first punctuation comes with the first record. By
    wall-clock time, the first punctuation comes after one interval. With `start_ms`, it comes then
    or, if that has passed, at the next time that is whole intervals later (KIP-1146).
    """
    if start_ms is not None:
        passed = now_ms - start_ms
        return start_ms if passed <= 0 else now_ms - passed % interval_ms + interval_ms
    return 0 if type_ is PunctuationType.STREAM_TIME else now_ms + interval_ms


class PunctuationQueue:
    """The punctuations of a task by one kind of time, ordered by due time.

    Punctuations that are due at the same time fire in the order in which they got that due time.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Schedule]] = []
        self._order = count()
        self._firing_ms: int | None = None
        """The time at which punctuations are being fired."""

    def schedule(self, interval_ms: int, callback: Punctuator, start_ms: int) -> Cancellable:
        """Call `callback` at `start_ms` and every `interval_ms`, 1 or more, from then on.

        What a callback schedules comes after the time at which that is called: one that schedules
        itself would be called forever.
        """
        schedule = _Schedule(interval_ms, callback)
        if self._firing_ms is not None and start_ms <= self._firing_ms:
            start_ms = _next_due_ms(start_ms, interval_ms, self._firing_ms)
        self._push(start_ms, schedule)
        return schedule

    @property
    def next_ms(self) -> int | None:
        """When the next punctuation is due; `None` if there is none."""
        heap = self._heap
        while heap and heap[0][2].cancelled:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def punctuate(self, now_ms: int, call: Callable[[Punctuator, int], None]) -> int:
        """Fire each due punctuation once, however many intervals were missed.

        `call(callback, now_ms)` makes the call; a callback gets `now_ms`, not its due time. The
        next due time is the first one after `now_ms` that is a whole number of intervals away from
        the start, so it never drifts. Callbacks may cancel and schedule. Errors of `call`
        propagate: the punctuation that failed is due again at its next time, and the ones after it
        are still due.

        Returns how many fired.
        """
        fired = 0
        self._firing_ms = now_ms
        try:
            while (due_ms := self.next_ms) is not None and due_ms <= now_ms:
                schedule = heapq.heappop(self._heap)[2]
                self._push(_next_due_ms(due_ms, schedule.interval_ms, now_ms), schedule)
                call(schedule.callback, now_ms)
                fired += 1
        finally:
            self._firing_ms = None
        return fired

    def skip(self, now_ms: int) -> None:
        """Skip all due punctuations: they were called before the task started again."""
        self.punctuate(now_ms, lambda callback, time: None)

    def clear(self) -> None:
        """Forget all punctuations, as when the task closes."""
        self._heap.clear()

    def _push(self, due_ms: int, schedule: _Schedule) -> None:
        heapq.heappush(self._heap, (due_ms, next(self._order), schedule))


def _next_due_ms(due_ms: int, interval_ms: int, now_ms: int) -> int:
    """Return the first time after `now_ms` that is whole intervals after a due time."""
    return due_ms + ((now_ms - due_ms) // interval_ms + 1) * interval_ms

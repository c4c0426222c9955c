"""The newest entries of a window store with duplicates, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_pipeline.streams.stores.caches import ENTRY_BYTES, StoreCache

if TYPE_CHECKING:
    from kafka_pipeline.streams.stores.window import WindowStore

TimeAndBytes = tuple[int, bytes]
Entries = dict[bytes, list[TimeAndBytes]]
"""Times and values of each key, in the order of the store."""

_SHARE = 8
"""One cache takes up to this part of the budget of all."""
_FIRST_SHARE = 64
"""A cache that takes less than this part of the budget is not looked through."""


class RecentWindows(StoreCache):
    """A window store with duplicates, whose newest entries are in memory too.

    It does what `fetch_serialized` and `put_one_serialized` of the store do, and nobody else may
    write to the store. All entries after a certain time are in memory, and all entries are in the
    store. Those that are more than `lookback_ms` older than the newest one are forgotten
    before they take as much memory as the others, and all of them if they take too much.
    """

    def __init__(self, store: WindowStore[Any, Any], lookback_ms: int) -> None:
        """Begin with nothing in memory."""
        super().__init__(store.cache_budget)
        store.expect_no_reads()
        self.store = store
        self._lookback_ms = lookback_ms
        self._least = store.cache_budget.limit_bytes // _FIRST_SHARE
        self._most = store.cache_budget.limit_bytes // _SHARE
        self._shrinks_at = self._least
        self._held: tuple[Entries, int, int | None] = {}, store.stream_time, store.generation
        """What `follow` returns, and the generation of the store for which it is right.

        Another thread may replace all of it at once, but not change it.
        """

    def follow(self) -> tuple[Entries, int]:
        """Return what is in memory, and until when the store may have entries that are not.

        Forgets all if writes were undone since the last call.
        """
        entries, complete_after, generation = self._held
        if generation != self.store.generation:
            entries, complete_after, self.size = {}, self.store.stream_time, 0
            self._held = entries, complete_after, self.store.generation
        return entries, complete_after

    def fetch_serialized(self, key: bytes, first: int, last: int) -> Sequence[TimeAndBytes]:
        """Return times and values of a key in a range of times, the oldest first."""
        entries, complete_after = self.follow()
        if first <= complete_after:
            return self.store.fetch_serialized(key, first, last)
        return between(entries.get(key, ()), max(first, self.store.live_from), last)

    def put_one_serialized(self, key: bytes, time: int, value: bytes) -> None:
        """Add a value; what has expired is dropped and counted."""
        entries, complete_after = self.follow()
        if time <= complete_after:
            self.store.put_one_serialized(key, time, value)
            return
        number = len(between(entries.get(key, ()), time, time))
        if self.store.put_one_serialized(key, time, value, number):
            insert(entries.setdefault(key, []), time, value)
            self.grow(ENTRY_BYTES + len(key) + len(value))

    def grow(self, size: int) -> None:
        """Count bytes that were added, and forget entries if they are too many."""
        super().grow(size)
        if self.size > self._shrinks_at:
            self._shrink()

    def clear(self) -> None:
        """Forget everything; the thread of the store may finish what it does with it."""
        self._held, self.size = ({}, 0, None), 0

    def measure(self) -> int:
        return self.size

    def _shrink(self) -> None:
        entries, complete_after, generation = self._held
        newest = self.store.stream_time
        after = max(complete_after, newest - self._lookback_ms - 1)
        kept, size = {}, 0
        for key, of_key in entries.items():
            left = of_key[bisect_left(of_key, (after + 1,)) :]
            if left:
                kept[key] = left
                size += (ENTRY_BYTES + len(key)) * len(left) + sum(len(value) for _, value in left)
        if size > self._most // 2:
            kept, after, size = {}, newest, 0
        self._held, self.size = (kept, after, generation), size
        self._shrinks_at = min(max(2 * size, self._least), self._most)


def between(entries: Sequence[TimeAndBytes], first: int, last: int) -> Sequence[TimeAndBytes]:
    """Return those of a key's entries that are in a range of times, both included."""
    if not entries or entries[-1][0] < first:
        return ()
    start = bisect_left(entries, (first,))
    return entries[start : bisect_left(entries, (last + 1,), start)]


def insert(entries: list[TimeAndBytes], time: int, value: bytes) -> int:
    """Add a value to a key's entries, the last one of its time; return how many have that time."""
    end = bisect_left(entries, (time + 1,))
    entries.insert(end, (time, value))
    return end - bisect_left(entries, (time,))

"""Keys in byte order; adding a key takes the same microsecond even among a million."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

CHUNK_KEYS = 1000


class SortedKeys:
    """A sorted set of byte strings, in chunks of up to 2,000."""

    __slots__ = ("_chunks", "_lows")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        """Start with `keys`, in any order, each once."""
        ordered = sorted(keys)
        starts = range(0, max(len(ordered), 1), CHUNK_KEYS)
        self._chunks = [ordered[start : start + CHUNK_KEYS] for start in starts]
        # Chunk i has the keys from lows[i] to lows[i + 1]; it need not have lows[i] itself.
        self._lows = [b"", *(chunk[0] for chunk in self._chunks[1:])]

    def add(self, key: bytes) -> None:
        """Add a key that is not in the set."""
        number = bisect_right(self._lows, key) - 1
        chunk = self._chunks[number]
        insort(chunk, key)
        if len(chunk) > 2 * CHUNK_KEYS:
            self._chunks.insert(number + 1, chunk[CHUNK_KEYS:])
            self._lows.insert(number + 1, chunk[CHUNK_KEYS])
            del chunk[CHUNK_KEYS:]

    def discard(self, key: bytes) -> None:
        """Remove a key if it is in the set."""
        number = bisect_right(self._lows, key) - 1
        chunk = self._chunks[number]
        place = bisect_left(chunk, key)
        if place == len(chunk) or chunk[place] != key:
            return
        del chunk[place]
        if not chunk and len(self._chunks) > 1:
            del self._chunks[number]
            del self._lows[number]
            self._lows[0] = b""

    def between(self, low: bytes, high: bytes | None, reverse: bool = False) -> Iterator[bytes]:
        """Yield the keys with `low <= key < high` in order; `None` means no upper end.

        The set must not change before the last key has been read.
        """
        if high is not None and low >= high:
            return
        first = bisect_right(self._lows, low) - 1
        last = len(self._lows) - 1 if high is None else bisect_left(self._lows, high, 1) - 1
        numbers = range(first, last + 1)
        for number in reversed(numbers) if reverse else numbers:
            chunk = self._chunks[number]
            start = bisect_left(chunk, low) if number == first else 0
            end = len(chunk) if number < last or high is None else bisect_left(chunk, high)
            keys = chunk[start:end]
            yield from reversed(keys) if reverse else keys

    def range(self, low: bytes, high: bytes) -> list[bytes]:
        """Return the keys with `low <= key < high` in order; cheaper than `between` for a few."""
        lows = self._lows
        first, last = bisect_right(lows, low) - 1, bisect_left(lows, high, 1) - 1
        if first != last:
            return list(self.between(low, high))
        chunk = self._chunks[first]
        start = bisect_left(chunk, low)
        if start == len(chunk) or chunk[start] >= high:
            return []
        return chunk[start : bisect_left(chunk, high, start)]

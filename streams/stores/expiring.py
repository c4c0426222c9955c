"""Stores whose entries expire with time: by what is put, or by the time of a step."""

from __future__ import annotations

from kafka_pipeline.streams.stores.bytes_store import BytesStore, StoreBytes


class Expiring:
    """The base of stores with a clock. By default, it is the largest time that was ever put.

    They count the entries that they refuse because they come too late, except those undone later.
    """

    name: str
    dropped: int = 0
    """How many entries were refused because they came too late."""

    _marked = 0
    _store: StoreBytes

    def mark(self) -> None:
        """Remember the count for `back_to_mark`; the engine calls both."""
        self._marked = self.dropped

    def back_to_mark(self) -> None:
        """Forget what was counted since the last mark."""
        self.dropped = self._marked

    @property
    def generation(self) -> int:
        """Grows when the engine undoes writes: code that caches values must then forget them."""
        return self._store.generation

    def follow(self, time: int) -> None:
        """Let entries expire by the time of a step, which is `time` now, and not by what is put."""
        self._bytes.follow(time)

    def go_on(self, time: int) -> None:
        """Go on to a time of the step that the store follows."""
        self._bytes.go_on(time)

    @property
    def _bytes(self) -> BytesStore:
        assert isinstance(self._store, BytesStore), "only the task that writes a store moves it on"
        return self._store

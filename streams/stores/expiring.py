"""Stores whose entries expire with time: by what is put, or by the time of a step."""

from __future__ import annotations

from kafka_pipeline.streams.stores.api import LateCount
from kafka_pipeline.streams.stores.bytes_store import BytesStore, StoreBytes


class Expiring(LateCount):
    """The base of stores with a clock. By default, it is the largest time that was ever put."""

    _store: StoreBytes

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

"""Records that wait in a store, by time: lists of bytes under a time and a key."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.packing import pack, unpack
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, StoreBuilder, key_value

_PLACE = struct.Struct(">QB")

Items = list[bytes | None]
_ITEMS: Serde[Items] = Serde("items", pack, unpack)


def waiting_store(name: str, after_key: int) -> StoreBuilder[bytes, Items]:
    """Return the definition of a store for `Waiting`; it is logged, so records survive restarts.

    The last `after_key` bytes of a key are not part of the record's key.
    """
    return key_value(name, serdes.bytes, _ITEMS).spread(before=_PLACE.size, after=after_key)


class Waiting:
    """Lists of items, ordered by time, side and key.

    Records with the same time, side and key share a list, in order of arrival, and are removed
    together.
    """

    def __init__(self, store: KeyValueStore[bytes, Items]) -> None:
        self._store = store
        self._held: _Held | None = None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Write the changes of the block together; a list that comes and goes leaves no trace."""
        self._held = _Held()
        try:
            yield
            self._write(self._held)
        finally:
            self._held = None

    @property
    def generation(self) -> int:
        """Grows when the engine undoes writes: code that caches times must then forget them."""
        return self._store.generation

    def add(self, timestamp: int, side: int, key: bytes, *items: bytes | None) -> None:
        """Append items to a list."""
        place = _PLACE.pack(timestamp, side) + key
        if self._held is not None:
            self._held.added.setdefault(place, []).extend(items)
            return
        found = self._store.get(place) or []
        self._store.put(place, [*found, *items])

    def discard(self, timestamp: int, side: int, key: bytes) -> None:
        """Remove a list if it is there."""
        place = _PLACE.pack(timestamp, side) + key
        if self._held is not None:
            self._held.added.pop(place, None)
            self._held.discarded.add(place)
        elif self._store.get(place) is not None:
            self._store.put(place, None)

    def since(self, timestamp: int) -> Iterator[tuple[int, int, bytes, Items]]:
        """Yield time, side, key and items of each list from a time on."""
        if self._held is not None:
            self._write(self._held)
        with self._store.range(_PLACE.pack(timestamp, 0), None) as found:
            for place, items in found:
                timestamp, side = _PLACE.unpack_from(place)
                yield timestamp, side, place[_PLACE.size :], items

    def _write(self, held: _Held) -> None:
        """Write what is held."""
        added, discarded = held.added, held.discarded
        places = [*added, *(place for place in discarded if place not in added)]
        changes: dict[bytes, Items | None] = {}
        for place, found in zip(places, self._store.get_all(places), strict=True):
            kept = [] if found is None or place in discarded else found
            if items := [*kept, *added.get(place, ())]:
                changes[place] = items
            elif found is not None:
                changes[place] = None
        self._store.put_all(changes)
        added.clear()
        discarded.clear()


class _Held:
    """Changes that are not written yet: what was discarded, and what was added after that."""

    def __init__(self) -> None:
        self.added: dict[bytes, Items] = {}
        self.discarded: set[bytes] = set()

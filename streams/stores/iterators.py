"""Iterators over stores: they hold resources of the store until they are closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from weakref import ref

from kafka_pipeline.streams.errors import StateStoreError

T = TypeVar("T")


class StoreIterator(Generic[T]):
    """Entries of a store as they were when they were asked for; later writes do not show.

    Use it in a `with` statement, or read it to its end: both release its resources. Closing it
    again does nothing; reading after `close` raises `StateStoreError`. When a store closes, it
    closes its iterators.
    """

    __slots__ = ("__weakref__", "_items", "_sources")

    def __init__(self, items: Iterator[T], sources: Iterable[StoreIterator[Any]] = ()) -> None:
        """Iterate over `items`; `close` also closes `sources`, from which the items come."""
        self._items: Iterator[T] | None = items
        self._sources = sources

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._items is None:
            raise StateStoreError("the iterator is closed, or its store is")
        try:
            return next(self._items)
        except StateStoreError:  # its source was closed: say so from now on
            self.close()
            raise

    def close(self) -> None:
        """Release what the iterator holds."""
        self._items = None
        for source in self._sources:
            source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class EntryReader(Generic[T]):
    """Entries that are read one by one, or all at once just before they change."""

    __slots__ = ("__weakref__", "_items")

    def __init__(self, items: Iterator[T]) -> None:
        """Read `items`."""
        self._items = items

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return next(self._items)

    def read_all(self) -> None:
        """Read the remaining items into memory."""
        self._items = iter(list(self._items))


class Readers(Generic[T]):
    """The current readers of a collection; call `read_all` before a change if any are `open`."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        """Start without readers."""
        self.open: set[ref[EntryReader[T]]] = set()

    def read(self, items: Iterator[T]) -> EntryReader[T]:
        """Return a reader of `items`, which come from the collection."""
        reader = EntryReader(items)
        self.open.add(ref(reader, self.open.discard))
        return reader

    def read_all(self) -> None:
        """Let all readers read to the end before the collection changes."""
        for reference in list(self.open):
            reader = reference()
            if reader is not None:
                reader.read_all()
        self.open.clear()

"""What the thread of a window store remembers for each key, so that it reads less."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka_pipeline.streams.stores.caches import StoreCache

if TYPE_CHECKING:
    from kafka_pipeline.streams.stores.window import WindowStore

T = TypeVar("T")


class RememberedKeys(StoreCache, Generic[T]):
    """What is remembered of a store from one use to the next, within the budget of all stores.

    What others write to the store, or the engine sets back, is noticed at the next use.
    """

    def __init__(self, store: WindowStore[Any, Any]) -> None:
        """Remember nothing at first."""
        super().__init__(store.cache_budget)
        store.expect_no_reads()
        self._store = store
        self._keys: dict[bytes, T] = {}
        self._as_of: tuple[int, int] | None = None
        """The state of the store that is remembered; `None` during a use."""
        self._is_too_large = False

    def clear(self) -> None:
        """Have the thread of the store forget everything at the next use."""
        self._is_too_large, self.size = True, 0

    def measure(self) -> int:
        """Return about how many bytes this takes; needs about 1 µs per key."""
        return sum(self._size_of(key, each) for key, each in list(self._keys.items()))

    @abstractmethod
    def _size_of(self, key: bytes, known: T) -> int:
        """Return about how many bytes take a key and what is known of it."""

    def _begin_use(self) -> None:
        """Forget everything if the store is no longer as it was, or if this is too much.

        If a record fails, what is remembered is not what the store has. So it is forgotten, unless
        the use ends by setting `_as_of`.
        """
        if self._is_too_large or self._as_of != (self._store.generation, self._store.writes):
            self._is_too_large = False
            self._keys, self.size = {}, 0
        self._as_of = None

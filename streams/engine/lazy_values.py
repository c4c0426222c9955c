"""Processors that read values of a topic without making an object of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.record import LazyColumn

MakeColumn = Callable[[Sequence[bytes | None]], LazyColumn]
"""Makes the values of a batch out of the bytes that were read."""


class ReadsLazily(EitherWay):
    """A processor of the engine's own that may take values as a `LazyColumn`.

    Nothing that gets batches from it, or from the same source, may look at values otherwise than
    through `items_of`; so this is not for processors of the user's.
    """

    @abstractmethod
    def lazy_reader(self, deserialize: Callable[[Any], Any]) -> MakeColumn | None:
        """Return what makes columns that give the same items as `deserialize`; or `None`."""

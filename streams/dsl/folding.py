"""Adds the records of a batch to aggregates, with the results of one record after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores.bytes_store import Changes
from kafka_pipeline.streams.stores.key_value import with_time

_SAME_WHEN_READ: tuple[tuple[Serde[Any], type], ...] = (
    (serdes.integer, int),
    (serdes.json, int),
    (serdes.json, str),
    (serdes.string, str),
    (serdes.bytes, bytes),
)
"""Serdes that read what they have written as an equal value, which nobody can change."""


@dataclass(slots=True)
class Folded:
    """What a batch makes of aggregates: a new one for each record, and the one before it.

    The old ones are all `None` if nobody wants them. `times` are those of the aggregates, and
    `changes` is what to put into the store.
    """

    new: list[Any]
    old: Sequence[Any]
    times: list[int]
    changes: Changes


class Fold:
    """Adds values to aggregates; each call of a function gets an aggregate of its own."""

    def __init__(
        self, functions: AggregateFunctions, value_serde: Serde[Any], sends_old: bool
    ) -> None:
        self._functions = functions
        self._write, self._read = value_serde.serialize, value_serde.deserialize
        self._sends_old = sends_old
        self._reused = frozenset(kind for serde, kind in _SAME_WHEN_READ if serde is value_serde)

    def add(
        self,
        places: Sequence[bytes],
        records: Iterable[tuple[Any, Any, int]],
        found: Iterable[tuple[bytes, int] | None],
    ) -> Folded:
        """Add records, each given as key, value and time, to the aggregates at their places.

        A place is the key of an aggregate in the store. `found` has the aggregates that the store
        has, as bytes and with their times, in the order in which `dict.fromkeys(places)` has the
        places. Raises `SerializationError`, and what the user's functions raise.
        """
        first, adder = self._functions.first, self._functions.adder
        write, read, reused, sends_old = self._write, self._read, self._reused, self._sends_old
        content: dict[bytes, tuple[bytes, int] | None] = dict(
            zip(dict.fromkeys(places), found, strict=True)
        )
        known: dict[bytes, Any] = {}
        """Aggregates that need not be read."""
        news, times = list[Any](), list[int]()
        olds: list[Any] = []
        for place, (key, value, time) in zip(places, records, strict=True):
            entry = content[place]
            if entry is None:
                new = first(key, value)
                if sends_old:
                    olds.append(None)
            else:
                data, former_time = entry
                aggregate = known.get(place)
                if aggregate is None:
                    aggregate = read(data)
                if sends_old:
                    olds.append(aggregate if aggregate.__class__ in reused else read(data))
                new = adder(key, value, aggregate)
                if former_time > time:
                    time = former_time
            if new is None:
                content[place] = None
                known.pop(place, None)
            else:
                content[place] = write(new), time
                if new.__class__ in reused:
                    known[place] = new
                elif place in known:
                    del known[place]
            news.append(new)
            times.append(time)
        changes = {place: with_time(entry) for place, entry in content.items()}
        return Folded(news, olds if sends_old else [None] * len(news), times, changes)

"""The values with the largest rank of each group."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from kafka_pipeline.streams.dsl.aggregate_functions import AggregateFunctions
from kafka_pipeline.streams.dsl.expression_calls import function_of_both
from kafka_pipeline.streams.dsl.expressions import Expression
from kafka_pipeline.streams.errors import StreamsError, TopologyError
from kafka_pipeline.streams.serdes import Serde

Entry = tuple[Any, Any]
"""A rank and a value."""


class TopN:
    """Keeps the values with the largest ranks, the largest first, as a list of entries."""

    def __init__(
        self,
        n: int,
        by: Callable[[Any, Any], Any] | Expression,
        ascending: bool,
        value_serde: Serde[Any],
        name: str | None,
    ) -> None:
        """`value_serde` writes values into the store. Raises `TopologyError`."""
        self._step = f'top_n "{name}"' if name else "top_n"
        if type(n) is not int or n < 1:
            raise TopologyError(f"{self._step} keeps 1 value or more, not {n!r}")
        self._n = n
        self._rank = function_of_both(by, "top_n", name)
        self._ascending = ascending
        self.serde = entries(value_serde)

    @property
    def functions(self) -> AggregateFunctions:
        """The functions of the list of entries."""
        parts = (f"the {'smallest' if self._ascending else 'largest'} values",)
        return AggregateFunctions(list, self._add, None, self._merge, parts)

    def result(self, states: list[Entry]) -> list[Any]:
        """Return the values of a list of entries."""
        return [value for _, value in states]

    def _add(self, key: Any, value: Any, found: list[Entry]) -> list[Entry]:
        rank = self._rank(key, value)
        if rank is None or rank != rank:
            return found
        if type(rank) not in (int, float, str):
            raise StreamsError(
                f"{self._step}: by gives numbers or strings, not a {type(rank).__name__}"
            )
        return self._best([*found, (rank, value)])

    def _merge(self, key: Any, a: list[Entry], b: list[Entry]) -> list[Entry]:
        return self._best([*a, *b])

    def _best(self, found: list[Entry]) -> list[Entry]:
        # Sorting keeps the order of equal ranks, in both directions.
        try:
            found.sort(key=lambda entry: entry[0], reverse=not self._ascending)
        except TypeError:
            kinds = " and ".join(sorted({type(rank).__name__ for rank, _ in found}))
            raise StreamsError(f"{self._step}: by gives {kinds}, which have no order") from None
        return found[: self._n]


def entries(value_serde: Serde[Any]) -> Serde[list[Entry]]:
    """Return the serde of a list of entries, whose values another serde writes."""
    write_value, read_value = value_serde.serialize, value_serde.deserialize

    def write(found: list[Entry]) -> bytes:
        rows = [
            [rank, None if value is None else b64encode(write_value(value)).decode()]
            for rank, value in found
        ]
        return json.dumps(rows, separators=(",", ":")).encode()

    def read(data: bytes) -> list[Entry]:
        return [
            (rank, None if value is None else read_value(b64decode(value)))
            for rank, value in json.loads(data)
        ]

    return Serde(f"entries of {value_serde.name}", write, read)

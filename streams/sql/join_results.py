"""What Spark says of the pairs and the single rows of a regular join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa

from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.sql.join_shape import MATCHES, PreparedJoin
from kafka_pipeline.streams.sql.join_state import pairs_table
from kafka_pipeline.streams.sql.processor import run_carefully
from kafka_pipeline.streams.sql.regular_join_state import JoinEntry
from kafka_pipeline.streams.sql.row_codec import RowCodec

E = TypeVar("E", bound=JoinEntry)


class JoinResults:
    """Computes conditions and results of entries. All calls raise as `run_carefully` does."""

    def __init__(self, query: PreparedJoin) -> None:
        self._query = query
        self._shape = query.shape
        self._codecs = tuple(RowCodec(rows) for rows in query.shape.rows)

    def matching(self, candidates: Sequence[E], *, is_alone: bool) -> Sequence[E]:
        """Return the pairs that meet the condition, if that must be known before their results."""
        if not self._shape.is_checked or not candidates:
            return candidates
        table = self._table(candidates)
        matches = run_carefully(self._query.matches, table, is_alone=is_alone)[MATCHES]
        found = zip(candidates, matches.to_pylist(), strict=True)
        return [each for each, fits in found if fits]

    def of(self, entries: Sequence[JoinEntry], *, is_alone: bool) -> pa.Table | None:
        """Return the results of entries, with their `PAIR`; `None` if there is nothing to compute.

        Raises `StreamsError` for a result without a time.
        """
        if not entries:
            return None
        results = run_carefully(self._query.results, self._table(entries), is_alone=is_alone)
        if results["timestamp"].null_count:
            raise StreamsError("the query gives a record whose timestamp is null")
        return results

    def _table(self, entries: Sequence[JoinEntry]) -> pa.Table:
        rows, places = [], []
        for of_side in ([each.left for each in entries], [each.right for each in entries]):
            known = dict[int, int]()
            places.append(
                [None if row is None else known.setdefault(id(row), len(known)) for row in of_side]
            )
            different = {id(row): row.data for row in of_side if row is not None}
            rows.append([*different.values()])
        times = [entry.time for entry in entries]
        return pairs_table(self._shape, self._codecs, rows, places, times)

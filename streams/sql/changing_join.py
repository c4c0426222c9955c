"""A regular join whose rows may be taken out again: what becomes of the results of a batch.

Spark computes what a row gave when it goes, as it did when it came. Of that, the keys are needed:
they are deleted, unless other results have them from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kafka_pipeline.common.pipelines.specs import JoinSpec
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, in_columns
from kafka_pipeline.streams.sql.changing_join_state import ChangingJoinState, SignedEntry
from kafka_pipeline.streams.sql.columns import batch_of
from kafka_pipeline.streams.sql.join_records import Row
from kafka_pipeline.streams.sql.join_results import JoinResults
from kafka_pipeline.streams.sql.join_shape import PAIR, JoinShape


class ChangingJoin:
    """Joins rows that come and go, for one task."""

    def __init__(
        self, shape: JoinShape, join: JoinSpec, results: JoinResults, context: ProcessorContext
    ) -> None:
        """Raise `QueryError` if the state was kept for another query."""
        self.state = ChangingJoinState(shape, join, context)
        self._results = results

    def results(
        self, batch: Batch, rows: Sequence[Row], keys: Sequence[bytes | None], *, is_alone: bool
    ) -> Batch:
        """Do all for the rows of a batch, and return the results and deletions.

        Each record is a change of its own. All that it gives is computed, also if a later one
        takes it back: so what is rejected does not depend on batches. Of each key, only the last
        result or deletion is sent. Raises `StreamsError` for a result without a key.
        """
        changes = self.state.changes(rows, batch, keys)
        candidates = [pair for change in changes for pair in change.pairs]
        matching = {*map(id, self._results.matching(candidates, is_alone=is_alone))}
        for change in changes:
            change.pairs = [pair for pair in change.pairs if id(pair) in matching]
        entries = _net(self.state.entries(changes, batch))
        found = self._results.of(entries, is_alone=is_alone)
        sent = Batch([], [], []) if found is None else _last(found, entries, batch.timestamps)
        self.state.keep_changes(changes, batch)
        return sent


def _net(entries: Sequence[SignedEntry]) -> list[SignedEntry]:
    """Return what each record changes in the end, what it takes back first, in their order."""
    signs = dict[tuple[int, int, int], int]()
    last = dict[tuple[int, int, int], SignedEntry]()
    for entry in entries:
        place = entry.record, id(entry.left), id(entry.right)
        signs[place] = signs.get(place, 0) + entry.sign
        last[place] = entry
    found = [entry for place, entry in last.items() if signs[place]]
    found.sort(key=lambda entry: (entry.record, entry.sign))
    return found


def _last(results: pa.Table, entries: Sequence[SignedEntry], times: Sequence[int]) -> Batch:
    """Return the last result or deletion of each key; `times` are those of the records.

    A key that a batch gives first, and then takes back, was not sent: nothing is deleted.
    """
    given, last = batch_of(results.drop_columns([PAIR])), dict[bytes, Record]()
    is_new = dict[bytes, bool]()
    for number, result in zip(results[PAIR].to_pylist(), given.records(), strict=True):
        if result.key is None:
            raise StreamsError(
                "the query gives a result no key, so it could not be deleted once its rows "
                "change: let it give a key that is never null, such as coalesce(o.key, p.key) AS "
                "key"
            )
        entry = entries[number]
        if entry.sign < 0:
            time = max(result.timestamp, times[entry.record])
            result = Record(result.key, None, time)
        is_new.setdefault(result.key, entry.sign > 0)
        last.pop(result.key, None)
        last[result.key] = result
    made = [each for key, each in last.items() if each.value is not None or not is_new[key]]
    return in_columns(made)

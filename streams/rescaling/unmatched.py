"""The results of rows of a query's join that have no partner yet, which are kept by numbers."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.rescaling.saved import SavedState, SpreadRow
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.sql.join_state import Renumbering, number_of_place, number_of_row
from kafka_pipeline.streams.sql.state_stores import ROWS
from kafka_pipeline.streams.stores.layout import without_time


def spread_unmatched(store: str, state: SavedState, tasks: Tasks) -> Iterator[SpreadRow]:
    """Yield the results, each for the task that gets its row.

    A row that is not kept has no key, or came too late for a partner. Any task of its group can
    wait with its results.
    """
    for task in range(tasks.before):
        found = state.last(store, task)
        keys = _keys(state, task, {number_of_place(place) for place in found})
        renumbering = Renumbering(tasks.merged, tasks.rank(task))
        for place, value, timestamp, headers in found.values():
            key = keys.get(number_of_place(place))
            partition = task % tasks.after if key is None else default_partition(key, tasks.after)
            yield SpreadRow(renumbering.place(place), value, partition, timestamp, headers)


def _keys(state: SavedState, task: int, numbers: set[int]) -> dict[int, bytes]:
    """Return the keys of the rows with these numbers."""
    found: dict[int, bytes] = {}
    for side in ROWS if numbers else ():
        for rows in state.read(side, task):
            for row in rows:
                number = None if row.value is None else number_of_row(row.value)
                if number is not None and number in numbers:
                    found[number] = without_time(row.key, "window")
    return found

"""Spreads the stores of a processor over another number of tasks: each entry goes with its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from kafka_pipeline.common.calendars import Calendar
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.pipelines.processors import LoggedStore
from kafka_pipeline.common.pipelines.specs import SHAPE_STORE
from kafka_pipeline.common.pipelines.spreading import Rule, Spreading
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.backfill.partitions import partitions_of
from kafka_pipeline.streams.event_time.step_time import (
    closed_until,
    is_leap,
    merged_join_times,
    merged_times,
    times_store_name,
)
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.rescaling.saved import SavedRow, SavedState, SpreadRow
from kafka_pipeline.streams.rescaling.subscriptions import RowPartitions
from kafka_pipeline.streams.rescaling.tasks import Tasks
from kafka_pipeline.streams.sql.join_state import (
    Renumbering,
    merged_numbered_times,
    number_of_place,
    number_of_row,
)
from kafka_pipeline.streams.sql.kept_shape import KeyColumn
from kafka_pipeline.streams.sql.over_rows import marked_until
from kafka_pipeline.streams.sql.state_stores import ROWS
from kafka_pipeline.streams.stores.layout import (
    NO_KEY,
    TIME_OF,
    dropped_until,
    is_time_mark,
    record_key,
    time_mark,
    without_time,
)

_OF_TASK: Mapping[Rule, Callable[[Sequence[bytes], int], bytes]] = {
    "times": lambda found, _: merged_times(found),
    "join_times": lambda found, _: merged_join_times(found),
    "numbered_times": merged_numbered_times,
}
"""Functions that merge the single values of several tasks into one."""


class StateSpread:
    """The stores of one processor, before they are written again."""

    def __init__(
        self,
        processor: str,
        stores: Sequence[LoggedStore],
        tasks: Tasks,
        state: SavedState,
        answers: Mapping[str, Tasks],
    ) -> None:
        """`answers` has the tasks that read each topic of answers for `subscriptions`."""
        self._processor = processor
        self._stores = {store.name: store.spreading for store in stores}
        self._tasks = tasks
        self._state = state
        self._answers = answers

    def check_keys(self, store: str) -> None:
        """Raise `ConfigError` if an entry of a store is not in the task of its key."""
        spreading = self._stores[store]
        if spreading.rule in ("copy", "unmatched", *_OF_TASK):
            return
        for task in range(self._tasks.before):
            for rows in self._state.read(store, task):
                entries = _entries(spreading, rows)
                if spreading.rule == "subscriptions":
                    self._row_partitions(store).check(entries)
                if self._is_spread:
                    self._check_keys(store, task, [row.key for row in entries])

    def check_times(self, store: str) -> None:
        """Raise `ConfigError` if the times of tasks that become one do not suit each other."""
        spreading = self._stores[store]
        if spreading.rule == "numbered_times":
            for task in range(self._tasks.groups):
                list(self._merged(store, task))
        windows, latest = self._windows(store), _Latest(spreading, self._tasks)
        if windows is None:
            return
        for task in range(self._tasks.before):
            for rows in self._state.read(store, task):
                latest.see(task, rows)
                windows.see(task, _entries(spreading, rows))
        if lost := windows.lost(latest.times):
            raise ConfigError(
                f"{self._where(store)} has open windows in tasks whose time is far behind that of "
                f"others: {counted(lost, 'window')} would expire without a result. Wait until "
                "these tasks have caught up, or give a multiple of the number of tasks that there "
                f"are, {self._tasks.before}"
            )

    def rows(self, store: str) -> Iterator[SpreadRow]:
        """Yield the records of a store, each with its new partition."""
        spreading = self._stores[store]
        if spreading.rule == "copy":
            yield from self._copies(store)
        elif spreading.rule in _OF_TASK:
            for task in range(self._tasks.after):
                yield from self._merged(store, task)
        elif spreading.rule == "unmatched":
            yield from _spread_unmatched(store, self._state, self._tasks)
        else:
            yield from self._spread(store, spreading)

    def _spread(self, store: str, spreading: Spreading) -> Iterator[SpreadRow]:
        windows, latest = self._windows(store), _Latest(spreading, self._tasks)
        for task in range(self._tasks.before):
            changed = self._change_of(store, task)
            emitted = -1 if windows is None else windows.emitted_elsewhere(task)
            for rows in self._state.read(store, task):
                latest.see(task, rows)
                entries = _entries(spreading, rows)
                if emitted >= 0:
                    entries = [row for row in entries if latest.time_of(row.key) > emitted]
                places = [task] * len(entries)
                if self._is_spread:
                    owners = self._owners(store, [row.key for row in entries])
                    places = partitions_of(owners, self._tasks.after).tolist()
                for (key, value, timestamp, headers), place in zip(entries, places, strict=True):
                    new = value if value is None or changed is None else changed(value)
                    yield SpreadRow(key, new, place, timestamp, headers)
        if self._is_spread:
            yield from latest.marks()

    @property
    def _is_spread(self) -> bool:
        return self._tasks.before != self._tasks.after

    def _check_keys(self, store: str, task: int, keys: list[bytes]) -> None:
        found = partitions_of(self._owners(store, keys), self._tasks.before)
        if np.any(found != task):
            raise ConfigError(
                f"{self._where(store)} has keys in task {task} that are not keys of its records, "
                "or a partitioner has spread its records, or its keys were written by another "
                "serde: its state cannot be spread over another number of tasks"
            )

    def _owners(self, store: str, keys: Sequence[bytes]) -> pa.BinaryArray:
        """Return the keys of records that the keys of entries belong to."""
        spreading = self._stores[store]
        if spreading.rule != "columns":
            return pa.array([record_key(key, spreading) for key in keys], pa.binary())
        try:
            return self._key_column.of([record_key(key, spreading) for key in keys])
        except ValueError as error:
            raise ConfigError(f"{self._where(store)} cannot be spread: {error}") from error

    @cached_property
    def _key_column(self) -> KeyColumn:
        """Raises `ValueError` if the store of the shape does not say it."""
        shape = {row.key: row.value for row in self._copies(SHAPE_STORE, most=1)}
        return KeyColumn((shape.get(b"content") or b"{}").decode())

    def _change_of(self, store: str, task: int) -> Callable[[bytes], bytes] | None:
        """Return a function that rewrites the values of a task, or `None`."""
        spreading = self._stores[store]
        if spreading.marks_given and self._tasks.merged > 1:
            return partial(marked_until, self._closed(store).get(task, -1))
        match spreading.rule:
            case "numbered" if self._tasks.merged > 1:
                return Renumbering(self._tasks.merged, self._tasks.rank(task)).row
            case "subscriptions":
                return self._row_partitions(store).changed
        return None

    def _row_partitions(self, store: str) -> RowPartitions:
        spreading = self._stores[store]
        assert spreading.answers is not None
        tasks = self._answers[spreading.answers]
        return RowPartitions(self._where(store), tasks, spreading.after_row_key)

    def _windows(self, store: str) -> OpenWindows | None:
        """Return what is known of windows that are emitted on close, if tasks become one."""
        spreading = self._stores[store]
        if spreading.closes_ms is None or self._tasks.merged == 1:
            return None
        return OpenWindows(spreading, self._tasks, self._closed(store))

    def _closed(self, store: str) -> dict[int, int]:
        """Return the times up to which tasks have given the results of a store."""
        return {
            task: closed_until(row.value or b"")
            for task in range(self._tasks.before)
            for key, row in self._state.last(times_store_name(store), task).items()
            if not is_leap(key)
        }

    def _copies(self, store: str, most: int | None = None) -> Iterator[SpreadRow]:
        """Yield the same records for each of the tasks; of values that differ, the longest one."""
        found: dict[bytes, SavedRow] = {}
        for former in range(self._tasks.before):
            for key, row in self._state.last(store, former).items():
                known = found.get(key)
                if known is None or len(row.value or b"") > len(known.value or b""):
                    found[key] = row
        for task in range(self._tasks.after if most is None else most):
            for key, (_, value, timestamp, headers) in found.items():
                yield SpreadRow(key, value, task, timestamp, headers)

    def _merged(self, store: str, task: int) -> Iterator[SpreadRow]:
        found: dict[bytes, list[SavedRow]] = {}
        for former in self._tasks.former(task):
            for key, row in self._state.last(store, former).items():
                found.setdefault(key, []).append(row)
        merge = _OF_TASK[self._stores[store].rule]
        for key, rows in found.items():
            try:
                value = merge([row.value or b"" for row in rows], self._tasks.merged)
            except OverflowError as error:
                raise ConfigError(f"{self._where(store)} cannot be spread: {error}") from error
            yield SpreadRow(key, value, task, max(row.timestamp for row in rows), None)

    def _where(self, store: str) -> str:
        return f'the store "{store}" of "{self._processor}"'


class _Latest:
    """The stream time of the stores of each group of tasks.

    A new task gets only some keys of the former ones. A deletion with the largest time keeps its
    stream time from going back.
    """

    def __init__(self, spreading: Spreading, tasks: Tasks) -> None:
        self._time = spreading.time
        self._tasks = tasks
        self.times: dict[int, int] = {}
        self._written: dict[int, int] = {}

    def time_of(self, key: bytes) -> int:
        """Return the time of an entry."""
        assert self._time is not None
        return TIME_OF[self._time](key)

    def see(self, task: int, rows: Sequence[SavedRow]) -> None:
        """Advance the times of a task's group."""
        if self._time is None or not rows:
            return
        group = self._tasks.group_of(task)
        time = max(map(self.time_of, (row.key for row in rows)))
        written = max(row.timestamp for row in rows)
        self.times[group] = max(time, self.times.get(group, time))
        self._written[group] = max(written, self._written.get(group, written))

    def marks(self) -> Iterator[SpreadRow]:
        """Yield the deletions."""
        for task in range(self._tasks.after):
            group = self._tasks.group_of(task)
            if self._time is not None and group in self.times:
                key = time_mark(self._time, self.times[group])
                yield SpreadRow(key, None, task, self._written[group], None)


def _entries(spreading: Spreading, rows: Sequence[SavedRow]) -> Sequence[SavedRow]:
    """Return records without deletions of what no task has written.

    These are the marks of an earlier change of tasks, of dropped segments, and of `NO_KEY`.
    """
    time = spreading.time

    def is_entry(row: SavedRow) -> bool:
        if row.value is not None:
            return True
        is_mark = time is not None and (is_time_mark(time, row.key) or dropped_until(time, row.key))
        return row.key != NO_KEY and not is_mark

    return [row for row in rows if is_entry(row)]


def _spread_unmatched(store: str, state: SavedState, tasks: Tasks) -> Iterator[SpreadRow]:
    """Yield the results of rows of a query's join that have no partner yet, kept by numbers.

    Each is for the task that gets its row. A row that is not kept has no key, or came too late for
    a partner. Any task of its group can wait with its results.
    """
    for task in range(tasks.before):
        found = state.last(store, task)
        keys = _keys_of_rows(state, task, {number_of_place(place) for place in found})
        renumbering = Renumbering(tasks.merged, tasks.rank(task))
        for place, value, timestamp, headers in found.values():
            key = keys.get(number_of_place(place))
            partition = task % tasks.after if key is None else default_partition(key, tasks.after)
            yield SpreadRow(renumbering.place(place), value, partition, timestamp, headers)


def _keys_of_rows(state: SavedState, task: int, numbers: set[int]) -> dict[int, bytes]:
    """Return the keys of the rows with these numbers."""
    found: dict[int, bytes] = {}
    for side in ROWS if numbers else ():
        for rows in state.read(side, task):
            for row in rows:
                number = None if row.value is None else number_of_row(row.value)
                if number is not None and number in numbers:
                    found[number] = without_time(row.key, "window")
    return found


class OpenWindows:
    """The windows to emit on close, when several tasks become one.

    The tasks have emitted up to different times, `closed`. The new task continues from the earliest
    one, so results that others have emitted since are left out, and open windows must not have
    expired in it.
    """

    def __init__(self, spreading: Spreading, tasks: Tasks, closed: Mapping[int, int]) -> None:
        assert spreading.time is not None
        assert spreading.closes_ms is not None
        assert spreading.kept_ms is not None
        self._time_of = TIME_OF[spreading.time]
        self._closes_ms, self._kept_ms = spreading.closes_ms, spreading.kept_ms
        self._calendar = Calendar(*spreading.calendar) if spreading.calendar else None
        self._tasks = tasks
        self._closed = closed
        self._open: dict[int, dict[bytes, int]] = {}

    def emitted_elsewhere(self, task: int) -> int:
        """Return the last time of entries whose results the new task would emit again."""
        group = [self._closed[n] for n in self._tasks.former(task) if n in self._closed]
        closed = self._closed.get(task, -1)
        return self._emitted(closed) if closed > min(group, default=closed) else -1

    def see(self, task: int, rows: Sequence[SavedRow]) -> None:
        """Track the open windows in the next records of a task."""
        time_of, emitted = self._time_of, self._emitted(self._closed.get(task, -1))
        found = self._open.setdefault(self._tasks.group_of(task), {})
        for row in rows:
            time = time_of(row.key)
            if row.value is None:
                found.pop(row.key, None)
            elif time > emitted:
                found[row.key] = time

    def _emitted(self, closed: int) -> int:
        """Return the last time of entries that were emitted, by a time at which windows closed."""
        ended = closed - self._closes_ms
        return ended if self._calendar is None else self._calendar.span(ended)[0] - 1

    def lost(self, latest: Mapping[int, int]) -> int:
        """Return how many windows would expire before they close.

        `latest` has the stream time of the stores of each group.
        """
        return sum(
            time <= latest[group] - self._kept_ms
            for group, found in self._open.items()
            for time in found.values()
        )

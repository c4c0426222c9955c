"""Keeps the groups of a query in stores: looks up, merges, puts back, and gives the results."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.pipelines.specs import GroupingSpec
from kafka_pipeline.streams.dsl.time_windows import newest_start
from kafka_pipeline.streams.event_time.step_time import ENDS_MS, StepTime, times_store_name
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import batch_of, with_items
from kafka_pipeline.streams.sql.group_codec import GroupCodec, Groups
from kafka_pipeline.streams.sql.kept_distinct import (
    DistinctOfTable,
    DistinctOfWindows,
    KeptDistinct,
)
from kafka_pipeline.streams.sql.kept_layouts import KeptLayouts
from kafka_pipeline.streams.sql.kept_values import KeptValues
from kafka_pipeline.streams.sql.ranked_results import changes_of_ranks
from kafka_pipeline.streams.sql.state_shape import Merged, StateShape
from kafka_pipeline.streams.sql.state_stores import (
    DISTINCT,
    GROUPS,
    WINDOWS,
    last_start,
    windows_of,
)
from kafka_pipeline.streams.stores import KeyValueStore, WindowStore
from kafka_pipeline.streams.stores.layout import window_key

_Marks = npt.NDArray[np.int64]

_Id = tuple[bytes, int]
"""The key of a group in a store, and the start of its window; 0 without one."""

Merge = Callable[[pa.Table], pa.Table]
"""Merges rows; see `Aggregation.merge`."""

Wide = Callable[[pa.Table, int], Merged]
"""Merges rows as if best rows had this limit; places beyond the true one have no result."""

_TAGGED = b"\4"
_TAG_SIZE = 8
_COUNTED = 2
_COUNT = struct.Struct("<BI")


class SentMarks:
    """The first bytes of a group's value in a store: the marks of its results. The buffers follow.

    A value begins with a byte 4 and the tag of its layout (8 bytes). Then come the marks.
    There is one byte, which says whether HAVING kept the group. For best rows, there are 8 for each
    place up to the limit of the query that put the value, after a byte 2 and the number of places
    (4 bytes).
    """

    def __init__(self, shape: StateShape, tag: bytes) -> None:
        self._tag = _TAGGED + tag
        self._places = shape.best or 1
        self._type = np.dtype("<i8" if shape.best else "u1")
        self._size = self._places * self._type.itemsize
        self._head = _COUNT.pack(_COUNTED, self._places) if shape.best else b""

    def packed(self, merged: Merged) -> list[bytes]:
        """Return the marks of groups as the first bytes of their values."""
        marks = np.zeros((len(merged.rows), self._places), self._type)
        marks[merged.group_of, merged.places] = merged.marks
        packed, size, head = marks.tobytes(), self._size, self._tag + self._head
        return [head + packed[at : at + size] for at in range(0, len(packed), size)]

    def of_all(self, count: int, *, are_given: bool) -> list[bytes]:
        """Return the first bytes of values of groups whose results are all given, or none is."""
        return [self._tag + bytes([are_given])] * count

    def split(self, value: bytes | None) -> tuple[bytes, bytes]:
        """Return the marks and the buffers of a value; `None` is a group without results."""
        if value is None:
            return bytes(self._size), b""
        start = 1 + _TAG_SIZE
        if not self._head:
            return value[start : start + 1], value[start + 1 :]
        _, places = _COUNT.unpack_from(value, start)
        start += _COUNT.size
        end = start + places * self._type.itemsize
        return value[start:end], value[end:]

    def tag_of(self, value: bytes) -> bytes:
        """Return the tag of the layout of a value."""
        return value[1 : 1 + _TAG_SIZE]

    def heads(self, values: Iterable[bytes | None]) -> list[bytes]:
        """Return the first bytes of values as they are to stay, whatever the limit is now."""
        marks = [self.split(value)[0] for value in values]
        if not self._head:
            return [self._tag + each for each in marks]
        size = self._type.itemsize
        return [self._tag + _COUNT.pack(_COUNTED, len(each) // size) + each for each in marks]

    def former(self, values: Iterable[bytes | None], merged: Merged) -> _Marks:
        """Return the marks that results had, where `values` are those of their groups."""
        size = self._size
        heads = (self.split(value)[0][:size].ljust(size, b"\0") for value in values)
        marks = np.frombuffer(b"".join(heads), self._type).reshape(-1, self._places)
        return marks[merged.group_of, merged.places].astype(np.int64)

    def beyond(self, value: bytes | None) -> bytes:
        """Return the marks in a value of places that the limit leaves out now: 8 bytes each."""
        return self.split(value)[0][self._size :]


class KeptGroups:
    """The groups of a task. One thread at a time."""

    def __init__(
        self,
        shape: StateShape,
        context: ProcessorContext,
        layouts: KeptLayouts,
        distinct: KeptDistinct | None = None,
        *,
        closes: bool = False,
    ) -> None:
        """Take what the query keeps; if it `closes`, results are given on close only."""
        self.shape = shape
        self.closes = closes
        self.codec = GroupCodec(shape)
        self.sent = SentMarks(shape, layouts.tag)
        self._layouts = layouts
        self._distinct = distinct
        self.context = context

    def new(
        self, rows: pa.Table, groups: Groups, kept: Mapping[_Id, bytes]
    ) -> tuple[pa.Table, Groups, dict[_Id, bytes]]:
        """Return what matters to SELECT DISTINCT: groups that are not kept, or have no result yet.

        The last value has what was kept of those.
        """
        done = {id_ for id_, value in kept.items() if self.closes or self.had_result(value)}
        is_new = [id_ not in done for id_ in groups.ids]
        waiting = {id_: value for id_, value in kept.items() if id_ not in done}
        return rows.filter(pa.array(is_new, pa.bool_())), groups.only(is_new), waiting

    def unseen(self, rows: pa.Table, groups: Groups) -> pa.Table:
        """Return rows of a batch with the distinct values only that are new to their groups."""
        return rows if self._distinct is None else self._distinct.unseen(rows, groups)

    def merged(self, merge: Merge, kept: Groups, rows: pa.Table) -> tuple[Merged, Groups]:
        """Merge rows with those that were kept; the second value has the merged rows as bytes."""
        before = self.codec.decode(kept)
        merged = Merged.of(self.shape, merge(pa.concat_tables([before, rows])))
        return merged, self.codec.encode(self.shape.without_computed(merged.rows))

    @property
    def no_rows(self) -> pa.Table:
        """Rows of groups, of which there are none."""
        return self.codec.decode(Groups((), (), ()))

    def values(self, groups: Groups, merged: Merged, former: Iterable[bytes | None]) -> list[bytes]:
        """Return the values of groups in a store; `former` are those that they had.

        While windows are open, `on_close` gives no results, so the marks stay as they were. Ranked
        rows have a mark that says whether they were given.
        """
        if self.shape.ranked:
            marks = self.sent.of_all(len(groups.keys), are_given=not self.closes)
        else:
            marks = self.sent.heads(former) if self.closes else self.sent.packed(merged)
        return [head + buffers for head, buffers in zip(marks, groups.buffers, strict=True)]

    def buffers(self, values: Sequence[bytes]) -> Sequence[bytes]:
        """Return the buffers of groups with these values in a store, in the layout of the query."""
        tags = [self.sent.tag_of(value) for value in values]
        return self._layouts.converted(tags, [self.sent.split(value)[1] for value in values])

    def in_columns(self, kept: Mapping[_Id, bytes]) -> Groups:
        """Return groups with these values in a store."""
        keys, starts = [key for key, _ in kept], [start for _, start in kept]
        return Groups(keys, starts, self.buffers([*kept.values()]))

    def had_result(self, value: bytes | None) -> bool:
        """Whether a group with this value in a store has a result."""
        return value is not None and any(self.sent.split(value)[0])

    def results(self, merged: Merged, former: Sequence[bytes | None], time: int) -> list[Batch]:
        """Return the results of all groups, and deletions of those that have none any more.

        Of the best rows, only those are given that changed. A row of SELECT DISTINCT is given when
        it appears. `former` are the values that the groups had in a store.
        """
        if self.shape.ranked:
            were_given = [self.had_result(value) for value in former]
            return batches_of(changes_of_ranks(merged, were_given))
        results, marks = merged.results, self.sent.former(former, merged)
        is_given = merged.has_result
        if self.shape.best or self.shape.is_distinct:
            is_given = is_given & (marks != merged.marks)
        is_lost = (marks != 0) & (merged.marks == 0)
        if is_lost.any() and "key" in results.column_names:
            is_gone = is_lost & np.asarray(results["key"].is_valid())
            # The time of a deletion may be made of aggregates, which HAVING leaves out.
            times = results["timestamp"]
            times = pc.if_else(pa.array(is_gone), pc.fill_null(times, time), times)
            results = with_items(results, "timestamp", times)
            is_given = is_given | is_gone
        return batches_of(results if is_given.all() else results.filter(pa.array(is_given)))

    def deleted(
        self, merged: Merged, groups: Groups, former: Sequence[bytes | None], time: int, wide: Wide
    ) -> list[Batch]:
        """Return deletions of the results at places which the limit leaves out now.

        They have keys that no result of their group has any more, and that are made of grouping
        columns and the place. `groups` are those of `merged`, and `former` the values that they
        had. The next values do not have these places.
        """
        if not self.shape.best or "key" not in self.shape.output.names:
            return []
        cut = {
            id_: (value, np.frombuffer(beyond, np.int64))
            for id_, value in zip(groups.ids, former, strict=True)
            if any(beyond := self.sent.beyond(value))
        }
        if not cut:
            return []
        kept = self.in_columns({id_: value for id_, (value, _) in cut.items() if value is not None})
        size = self.shape.best + max(len(marks) for _, marks in cut.values())
        before = wide(self.codec.decode(kept), size)
        all_ids, has_result = groups.ids, merged.has_result.tolist()
        keys = merged.results["key"].to_pylist()
        now = {
            (all_ids[group], keys[row])
            for row, group in enumerate(merged.group_of.tolist())
            if has_result[row]
        }
        ids, former_keys = self.codec.groups(before.rows).ids, before.results["key"].to_pylist()
        gone = []
        places = zip(before.group_of.tolist(), before.places.tolist(), strict=True)
        for row, (group, place) in enumerate(places):
            id_, at, key = ids[group], place - self.shape.best, former_keys[row]
            marks = cut[id_][1]
            if 0 <= at < len(marks) and marks[at] and key is not None and (id_, key) not in now:
                gone.append(row)
        results = before.results.take(pa.array(gone, pa.int64()))
        times = pc.fill_null(results["timestamp"], time)
        return batches_of(with_items(results, "timestamp", times))


class KeptTable(KeptGroups):
    """Groups without windows, in a key-value store."""

    def __init__(
        self,
        shape: StateShape,
        context: ProcessorContext,
        grouping: GroupingSpec,
        layouts: KeptLayouts,
        wide: Wide,
    ) -> None:
        distinct = DistinctOfTable(shape, context) if grouping.keeps_distinct else None
        super().__init__(shape, context, layouts, distinct)
        self._values = KeptValues(shape, context) if grouping.keeps_values else None
        self._wide = wide
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(GROUPS)

    def add(self, rows: pa.Table, groups: Groups, merge: Merge, time: int) -> list[Batch]:
        """Merge rows into the state, and return the results.

        `groups` are the rows as bytes. `time` is the largest timestamp of the records of this
        batch.
        """
        wanted = list(dict.fromkeys(groups.ids))
        values = zip(wanted, self._store.get_all(key for key, _ in wanted), strict=True)
        kept = {id_: value for id_, value in values if value is not None}
        if self.shape.is_distinct and not self.shape.row_count:
            rows, groups, kept = self.new(rows, groups, kept)
            if not len(rows):
                return []
        rows = self.unseen(rows, groups)
        if self._values is not None:
            rows = self._values.changed(rows, groups)
        merged, now = self.merged(merge, self.in_columns(kept), rows)
        former = [kept.get(id_) for id_ in now.ids]
        values_now: list[bytes | None] = [*self.values(now, merged, former)]
        if self.shape.row_count:
            # A group whose rows are gone begins again, without what sums of floats have lost.
            counts = merged.rows[self.shape.row_count].to_pylist()
            values_now = [
                value if count or self._has_values(key) else None
                for key, value, count in zip(now.keys, values_now, counts, strict=True)
            ]
        self._store.put_serialized(dict(zip(now.keys, values_now, strict=True)))
        deleted = self.deleted(merged, now, former, time, self._wide)
        return [*deleted, *self.results(merged, former, time)]

    def _has_values(self, key: bytes) -> bool:
        """Whether a group without rows has values left, of a row that comes in parts."""
        return self._values is not None and self._values.has_some(key)


class KeptWindows(KeptGroups):
    """Groups with windows, in the window store of the DSL, and with its time.

    Windows that close are merged together with those that change: those that changed in the
    same batch come with what changed, and the others as they were kept.
    """

    def __init__(
        self,
        shape: StateShape,
        context: ProcessorContext,
        grouping: GroupingSpec,
        layouts: KeptLayouts,
        wide: Wide,
    ) -> None:
        distinct = DistinctOfWindows(shape, context) if grouping.keeps_distinct else None
        closes = grouping.emit == "on_close"
        super().__init__(shape, context, layouts, distinct, closes=closes)
        self._wide = wide
        self._store: WindowStore[bytes, bytes] = context.get_state_store(WINDOWS)
        names = [WINDOWS, *([DISTINCT] if grouping.keeps_distinct else [])]
        self._stores: list[WindowStore[bytes, bytes]] = [*map(context.get_state_store, names)]
        self._grouping, self._windows = grouping, windows_of(grouping)
        self.time = StepTime(context, context.get_state_store(times_store_name(WINDOWS)))
        if not self.time.follows_records:
            for store in self._stores:
                store.follow(self.time.now)

    def add(self, rows: pa.Table, groups: Groups, merge: Merge, time: int) -> list[Batch]:
        """See `KeptTable`; the rows are those of open windows only."""
        touched = list(dict.fromkeys(groups.ids))
        places = [window_key(key, start) for key, start in touched]
        values = zip(touched, self._store.get_all_serialized(places), strict=True)
        kept = {id_: value for id_, value in values if value is not None}
        if self.shape.is_distinct:
            rows, groups, kept = self.new(rows, groups, kept)
            touched = list(dict.fromkeys(groups.ids))
        closed = self.time.closed
        self.time.see(time)
        now = self.time.now
        if self.closes and self.time.follows_records:
            kept = self._closing(closed, now, set(touched)) | kept
        if not len(rows) and not kept:
            return []
        rows = self.unseen(rows, groups)
        merged, groups_now = self.merged(merge, self.in_columns(kept), rows)
        former_values = [kept.get(id_) for id_ in groups_now.ids]
        self._put(groups_now, self.values(groups_now, merged, former_values), set(touched))
        if not self.closes:
            deleted = self.deleted(merged, groups_now, former_values, time, self._wide)
            return [*deleted, *self.results(merged, former_values, time)]
        return self._closed(merged, groups_now, self._windows.closing(closed, now)[1])

    @property
    def all_closed_at(self) -> int | None:
        """The time at which the last open window closes; `None` if none is open."""
        closed = self.time.closed
        last = newest_start(self._store, self._windows.closing(closed, closed)[0])
        return None if last is None else self._windows.end(last) + self._windows.grace_ms

    def pass_time(self, time: int, merge: Merge) -> list[Batch]:
        """Go on to a time, as all inputs are known to be there; return the results of windows."""
        closed = self.time.closed
        self.time.move(time)
        kept = self._closing(closed, time, set()) if self.closes else {}
        if not self.time.follows_records:
            for store in self._stores:
                store.go_on(time - ENDS_MS)
        if not kept:
            return []
        merged, groups = self.merged(merge, self.in_columns(kept), self.no_rows)
        return self._closed(merged, groups, self._windows.closing(closed, time)[1])

    def _closing(self, closed: int, now: int, touched: set[_Id]) -> dict[_Id, bytes]:
        """Return the windows that close, except those that are touched."""
        first, last = self._windows.closing(closed, now)
        if last < 0 or last_start(self._grouping, self._windows, last) < first:
            return {}
        self.time.close(now)
        with self._store.fetch_all(first, last) as found:
            windows = {(key, window.start): value for (key, window), value in found}
        return {id_: value for id_, value in windows.items() if id_ not in touched}

    def _put(self, groups: Groups, values: Sequence[bytes], touched: set[_Id]) -> None:
        """Put the windows that changed."""
        changed = zip(groups.ids, values, strict=True)
        self._store.put_serialized(
            {window_key(*id_): value for id_, value in changed if id_ in touched}
        )

    def _closed(self, merged: Merged, groups: Groups, last: int) -> list[Batch]:
        """Return the results of windows that start up to `last`, in the order of start and key.

        Those of one group come in the order of their places.
        """
        has_result = merged.has_result.tolist()
        due = [
            (groups.starts[group], groups.keys[group], index)
            for index, group in enumerate(merged.group_of.tolist())
            if groups.starts[group] <= last and has_result[index] and not merged.is_former[index]
        ]
        order = pa.array([index for _, _, index in sorted(due)], pa.int64())
        return batches_of(merged.results.take(order))


def batches_of(results: pa.Table) -> list[Batch]:
    """Return the records of results, as one batch if there are any."""
    return [batch_of(results)] if len(results) else []

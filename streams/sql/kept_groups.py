"""Keeps the groups of a query in stores: looks up, merges, puts back, and gives the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from common.specs import SHAPE_STORE, GroupingSpec, WindowSpec
from streams.dsl.window_time import WindowTime, times_store_name
from streams.processor import ProcessorContext
from streams.record import Batch
from streams.sql.columns import batch_of
from streams.sql.group_codec import GroupCodec, Groups
from streams.sql.spec import QueryError
from streams.sql.state_shape import Merged, StateShape, difference
from streams.sql.state_stores import GROUPS, WINDOWS, windows_of
from streams.stores import KeyValueStore, WindowStore
from streams.stores.layout import window_key

Merge = Callable[[pa.Table], pa.Table]
"""Merges rows; see `Aggregation.merge`."""

_HAS_RESULT, _HAS_NONE = b"\1", b"\0"
"""The first byte of a group's value in a store: whether HAVING kept it. The buffers follow."""

_CONTENT = "content"
_ROUTES = {"whole": "by their key", "groups": "through an internal topic"}


class KeptShape:
    """What the state of a task was kept for, in a store of its own."""

    def __init__(
        self, shape: StateShape, grouping: GroupingSpec, context: ProcessorContext
    ) -> None:
        """Raise `QueryError` if the state was kept for a query with another shape."""
        self._store: KeyValueStore[str, str] = context.get_state_store(SHAPE_STORE)
        content = {**json.loads(shape.content), "route": _ROUTES[grouping.stage]}
        self._content = json.dumps(content, sort_keys=True)
        kept = self._store.get(_CONTENT)
        changed = "" if kept is None else difference(kept, self._content)
        if changed:
            raise QueryError(
                f"the state was kept for another query: {changed}. Go back to the former query, or "
                "give the processor another id, with which it begins without state; see "
                'docs/how-to/change_a_pipeline.md, "Change a query with GROUP BY"'
            )

    def keep(self) -> None:
        """Record what the state is kept for, with the first change of the state."""
        if self._store.get(_CONTENT) is None:
            self._store.put(_CONTENT, self._content)


class KeptGroups:
    """The groups of a task. One thread at a time."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        """Take what the query keeps."""
        self.shape = shape
        self.codec = GroupCodec(shape)
        self.context = context

    def new(
        self, rows: pa.Table, groups: Groups, kept: Collection[tuple[bytes, int]]
    ) -> tuple[pa.Table, Groups]:
        """Return the rows of groups that were not kept, which alone matter to SELECT DISTINCT."""
        is_new = [id_ not in kept for id_ in groups.ids]
        return rows.filter(pa.array(is_new, pa.bool_())), groups.only(is_new)

    def merged(self, merge: Merge, kept: Groups, rows: pa.Table) -> tuple[Merged, Groups]:
        """Merge rows with those that were kept; the second value has the merged rows as bytes."""
        before = self.codec.decode(kept)
        merged = Merged.of(self.shape, merge(pa.concat_tables([before, rows])))
        return merged, self.codec.encode(merged.rows)

    def results(self, merged: Merged, had_result: Iterable[bool], time: int) -> list[Batch]:
        """Return the results of all groups, and deletions of those that have none any more."""
        results, has_result = merged.results, merged.has_result
        if "key" not in results.column_names:
            return batches_of(results.filter(has_result))
        is_known = pc.is_valid(results["key"])
        had = pa.chunked_array([pa.array(list(had_result), pa.bool_())])
        is_gone = pc.and_(pc.and_(had, is_known), pc.invert(has_result))
        # The time of a deletion may be made of aggregates, which HAVING leaves out.
        times = pc.if_else(is_gone, pc.fill_null(results["timestamp"], time), results["timestamp"])
        place = results.column_names.index("timestamp")
        results = results.set_column(place, "timestamp", times)
        return batches_of(results.filter(pc.or_(has_result, is_gone)))


class KeptTable(KeptGroups):
    """Groups without windows, in a key-value store."""

    def __init__(self, shape: StateShape, context: ProcessorContext) -> None:
        super().__init__(shape, context)
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(GROUPS)

    def add(self, rows: pa.Table, groups: Groups, merge: Merge, time: int) -> list[Batch]:
        """Merge rows into the state, and return the results.

        `groups` are the rows as bytes. `time` is the largest timestamp of the records of this
        batch.
        """
        wanted = list(dict.fromkeys(groups.keys))
        values = zip(wanted, self._store.get_all(wanted), strict=True)
        kept = {key: value for key, value in values if value is not None}
        if self.shape.is_distinct:
            rows, groups = self.new(rows, groups, {(key, 0) for key in kept})
            kept = {}
            if not len(rows):
                return []
        buffers = [value[1:] for value in kept.values()]
        merged, now = self.merged(merge, Groups(list(kept), [0] * len(kept), buffers), rows)
        had = [had_result(kept.get(key)) for key in now.keys]
        values_now = values_of(now, merged)
        self._store.put_serialized(dict(zip(now.keys, values_now, strict=True)))
        return self.results(merged, had, time)


class KeptWindows(KeptGroups):
    """Groups with windows, in the window store of the DSL, and with its time.

    Windows that close are merged in the same job as those that change: those that changed in the
    same batch come with what changed, and the others as they were kept.
    """

    def __init__(
        self, shape: StateShape, context: ProcessorContext, grouping: GroupingSpec
    ) -> None:
        super().__init__(shape, context)
        self._store: WindowStore[bytes, bytes] = context.get_state_store(WINDOWS)
        self._windows = windows_of(grouping)
        assert isinstance(grouping.window, WindowSpec)
        self._start_ms = grouping.window.start_ms
        self._closes = grouping.emit == "on_close"
        self.time = WindowTime(context.get_state_store(times_store_name(WINDOWS)))

    def add(self, rows: pa.Table, groups: Groups, merge: Merge, time: int) -> list[Batch]:
        """See `KeptTable`; the rows are those of open windows only."""
        touched = list(dict.fromkeys(groups.ids))
        places = [window_key(key, start) for key, start in touched]
        values = zip(touched, self._store.get_all_serialized(places), strict=True)
        kept = {id_: value for id_, value in values if value is not None}
        if self.shape.is_distinct:
            rows, groups = self.new(rows, groups, kept)
            touched = [id_ for id_ in touched if id_ not in kept]
            kept = {}
        closed, now = self.time.closed, self.time.see(time)
        if self._closes:
            kept = self._closing(closed, now, set(touched)) | kept
        if not len(rows) and not kept:
            return []
        former = Groups(
            [key for key, _ in kept],
            [start for _, start in kept],
            [value[1:] for value in kept.values()],
        )
        merged, groups_now = self.merged(merge, former, rows)
        self._put(groups_now, values_of(groups_now, merged), set(touched))
        if not self._closes:
            had = [had_result(kept.get(id_)) for id_ in groups_now.ids]
            return self.results(merged, had, time)
        return self._closed(merged, groups_now, self._windows.closing(closed, now)[1])

    def _closing(
        self, closed: int, now: int, touched: set[tuple[bytes, int]]
    ) -> dict[tuple[bytes, int], bytes]:
        """Return the windows that close, except those that are touched."""
        first, last = self._windows.closing(closed, now)
        slide_ms = self._windows.advance_ms
        newest = (last - self._start_ms) // slide_ms * slide_ms + self._start_ms
        if last < 0 or newest < first:
            return {}
        self.time.close(now)
        with self._store.fetch_all(first, last) as found:
            windows = {(key, window.start): value for (key, window), value in found}
        return {id_: value for id_, value in windows.items() if id_ not in touched}

    def _put(
        self, groups: Groups, values: Sequence[bytes], touched: set[tuple[bytes, int]]
    ) -> None:
        """Put the windows that changed."""
        changed = zip(groups.ids, values, strict=True)
        self._store.put_serialized(
            {window_key(*id_): value for id_, value in changed if id_ in touched}
        )

    def _closed(self, merged: Merged, groups: Groups, last: int) -> list[Batch]:
        """Return the results of windows that start up to `last`, in the order of start and key."""
        has_result = merged.has_result.to_pylist()
        due = [
            (start, key, index)
            for index, (key, start) in enumerate(groups.ids)
            if start <= last and has_result[index]
        ]
        order = pa.array([index for _, _, index in sorted(due)], pa.int64())
        return batches_of(merged.results.take(order))


def had_result(value: bytes | None) -> bool:
    """Whether HAVING kept the group with this value in a store."""
    return value is not None and value[:1] == _HAS_RESULT


def values_of(groups: Groups, merged: Merged) -> list[bytes]:
    """Return the values of groups in a store."""
    has_result = merged.has_result.to_pylist()
    return [
        (_HAS_RESULT if has else _HAS_NONE) + buffers
        for has, buffers in zip(has_result, groups.buffers, strict=True)
    ]


def batches_of(results: pa.Table) -> list[Batch]:
    """Return the records of results, as one batch if there are any."""
    return [batch_of(results)] if len(results) else []

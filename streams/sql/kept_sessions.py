"""Keeps the sessions of a query in the session store of the DSL, with its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_pipeline.common.pipelines.specs import GroupingSpec
from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.dsl.closing import Closing
from kafka_pipeline.streams.dsl.session_windows import last_close, sessions_ending
from kafka_pipeline.streams.event_time.step_time import ENDS_MS, StepTime, times_store_name
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch
from kafka_pipeline.streams.sql.columns import with_items
from kafka_pipeline.streams.sql.group_codec import Groups
from kafka_pipeline.streams.sql.kept_groups import KeptGroups, Merge, batches_of
from kafka_pipeline.streams.sql.kept_layouts import KeptLayouts
from kafka_pipeline.streams.sql.session_merging import Session, SessionsOfKey
from kafka_pipeline.streams.sql.state_shape import Merged, StateShape
from kafka_pipeline.streams.sql.state_stores import SESSIONS, sessions_of
from kafka_pipeline.streams.stores import SessionStore
from kafka_pipeline.streams.windowed import Window, Windowed

_Id = Windowed[bytes]
_Kept = list[tuple[_Id, bytes]]
"""Sessions that were kept, with their values in the store."""


@dataclass(slots=True)
class Placed:
    """Where the rows of a batch belong.

    `kept` are the stored sessions near them, and `changed` the sessions with new rows. The parts of
    a changed session number first `kept`, then the rows. `late` are the numbers of rows without an
    open session.
    """

    kept: _Kept = field(default_factory=list)
    changed: list[tuple[bytes, Session]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    split: list[int] = field(default_factory=list)
    """The rows in a session of their own because the session next to them has closed."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A session with rows of this batch; `former` are the stored sessions in it."""

    id: _Id
    parts: Sequence[int]
    former: _Kept


class KeptSessions(KeptGroups):
    """Sessions, merged together with their buffers."""

    def __init__(
        self,
        shape: StateShape,
        context: ProcessorContext,
        grouping: GroupingSpec,
        layouts: KeptLayouts,
    ) -> None:
        super().__init__(shape, context, layouts, closes=grouping.emit == "on_close")
        self._store: SessionStore[bytes, bytes] = context.get_state_store(SESSIONS)
        self._sessions = sessions_of(grouping)
        self.delay_ms = self._sessions.gap_ms + self._sessions.grace_ms
        """How long after its last record a session closes, less 1 ms."""
        scan = partial(sessions_ending, self._store)
        self._closing = Closing(scan, serdes.bytes, self.delay_ms // 8)
        times = context.get_state_store(times_store_name(SESSIONS))
        self.time = StepTime(context, times, on_undo=self._closing.forget)
        if not self.time.follows_records:
            self._store.follow(self.time.now)

    def place(self, groups: Groups, late_by: npt.NDArray[np.int64]) -> Placed:
        """Find the sessions of rows, in this order.

        `late_by` holds for each row the stream time that may make it late.
        """
        by_key: dict[bytes, list[int]] = {}
        for row, key in enumerate(groups.keys):
            by_key.setdefault(key, []).append(row)
        placed, sessions = Placed(), dict[bytes, SessionsOfKey]()
        for key, rows in by_key.items():
            times = [groups.starts[row] for row in rows]
            found = self._near(key, times)
            known = [
                Session(*id_.window, [number])
                for number, (id_, _) in enumerate(found, len(placed.kept))
            ]
            placed.kept += found
            alone = not self.time.follows_records
            sessions[key] = SessionsOfKey(self._sessions, known, judges_alone=alone)
        size = len(placed.kept)
        for key, rows in by_key.items():
            of_key = sessions[key]
            for row in rows:
                time, now = groups.starts[row], int(late_by[row])
                if not of_key.add(time, now, size + row):
                    placed.late.append(row)
                elif of_key.is_next_to_closed(time, now) or self._has_expired(key, time):
                    placed.split.append(row)
            placed.changed += [(key, each) for each in of_key.found if each.parts[-1] >= size]
        placed.late.sort()
        return placed

    def add(self, rows: pa.Table, placed: Placed, merge: Merge, time: int) -> list[Batch]:
        """Merge rows into the state, and return the results.

        `time` is the largest timestamp of the records of this batch.
        """
        closed = self.time.closed
        self.time.see(time)
        now = self.time.now
        changes = [_change(key, session, placed) for key, session in placed.changed]
        if not self.closes:
            others = self._outgrown(changes, placed)
        else:
            others = self._due(closed, now, changes) if self.time.follows_records else []
        if not changes and not others:
            return []
        size = len(placed.kept) + len(rows)
        wanted = [(change.id, change.parts) for change in changes]
        wanted += [(id_, [size + number]) for number, (id_, _) in enumerate(others)]
        table = pa.concat_tables([self._decoded(placed.kept), rows, self._decoded(others)])
        merged, values = self._in_sessions(merge, table, wanted, dict([*placed.kept, *others]))
        self._put(changes, values, now)
        if self.closes:
            return self._closed(merged, list(values), now)
        places = {id_: place for place, id_ in enumerate(values)}
        deletions = self._deletions(merged, places, changes, others)
        kept = _taken(merged, [places[change.id] for change in changes])
        former = [dict(change.former).get(change.id) for change in changes]
        return [*deletions, *self.results(kept, former, time)]

    @property
    def all_closed_at(self) -> int | None:
        """The time at which the last open session closes; `None` if none is open."""
        return last_close(self._store, self.time.closed, self.delay_ms)

    def pass_time(self, time: int, merge: Merge) -> list[Batch]:
        """Go on to a time, as all inputs are known to be there; return the results of sessions."""
        closed = self.time.closed
        self.time.move(time)
        due = self._due(closed, time, ()) if self.closes else []
        if not self.time.follows_records:
            self._store.go_on(time - ENDS_MS)
        if not due:
            return []
        wanted = [(id_, [number]) for number, (id_, _) in enumerate(due)]
        merged, values = self._in_sessions(merge, self._decoded(due), wanted, dict(due))
        return self._closed(merged, list(values), time)

    def _near(self, key: bytes, times: Sequence[int]) -> _Kept:
        """Return the stored sessions of a key within the gap of any of these times."""
        gap_ms = self._sessions.gap_ms
        earliest_end = max(0, min(times) - gap_ms)
        with self._store.find_sessions(key, earliest_end, max(times) + gap_ms) as found:
            return list(found)

    def _has_expired(self, key: bytes, time: int) -> bool:
        gap_ms = self._sessions.gap_ms
        return self._store.has_expired(key, time - gap_ms, time + gap_ms)

    def _due(self, closed: int, now: int, changes: Sequence[_Change]) -> _Kept:
        """Return the sessions that close, except those inside changed sessions."""
        changed = {id_ for change in changes for id_, _ in change.former}
        due = self._closing.due(closed - self.delay_ms, now - self.delay_ms - 1)
        values = [(id_, self._store.fetch_session(id_.key, *id_.window)) for id_ in due]
        found = [(id_, each) for id_, each in values if each is not None and id_ not in changed]
        if found:
            self.time.close(now)
        return found

    def _outgrown(self, changes: Sequence[_Change], placed: Placed) -> _Kept:
        """Return the former sessions, now inside larger ones, whose results must be deleted.

        Without a column `key`, no result can be deleted.
        """
        if "key" not in self.shape.output.names:
            return []
        return [
            (id_, value)
            for change in changes
            for id_, value in change.former
            if id_ != change.id and self.had_result(value)
        ]

    def _decoded(self, kept: _Kept) -> pa.Table:
        keys, starts = [id_.key for id_, _ in kept], [id_.window.start for id_, _ in kept]
        buffers = self.buffers([value for _, value in kept])
        return self.codec.decode(Groups(keys, starts, buffers))

    def _in_sessions(
        self,
        merge: Merge,
        table: pa.Table,
        wanted: Sequence[tuple[_Id, Sequence[int]]],
        kept: Mapping[_Id, bytes],
    ) -> tuple[Merged, dict[_Id, bytes]]:
        """Merge rows of a table, given by their numbers, into sessions.

        The second value maps the sessions, in the order of the merged rows, to their new values.
        `kept` holds the former values.
        """
        picks = [number for _, parts in wanted for number in parts]
        windows = [id_.window for id_, parts in wanted for _ in parts]
        starts, lasts = [each.start for each in windows], [each.end for each in windows]
        rows = table.take(pa.array(picks, pa.int64()))
        merged = Merged.of(self.shape, merge(self.codec.in_sessions(rows, starts, lasts)))
        groups, ends = self.codec.encode(merged.rows), self.codec.lasts(merged.rows)
        ids = list(map(Windowed, groups.keys, map(Window, groups.starts, ends)))
        values = self.values(groups, merged, map(kept.get, ids))
        return merged, dict(zip(ids, values, strict=True))

    def _put(self, changes: Sequence[_Change], values: Mapping[_Id, bytes], now: int) -> None:
        """Replace stored sessions by the larger ones that contain them; drop those that closed."""
        for change in changes:
            is_open = change.id.window.end + self.delay_ms >= now
            for id_, _ in change.former:
                if id_ != change.id or not is_open:
                    self._store.remove(id_)
            if is_open:
                self._store.put(change.id, values[change.id])
                if self.closes:
                    self._closing.add(change.id)

    def _closed(self, merged: Merged, ids: Sequence[_Id], now: int) -> list[Batch]:
        """Return the results of sessions that have closed, in the order of end, start and key."""
        has_result = merged.has_result.tolist()
        due = [
            (end, start, key, place)
            for place, (key, (start, end)) in enumerate(ids)
            if end + self.delay_ms < now and has_result[place]
        ]
        order = pa.array([place for *_, place in sorted(due)], pa.int64())
        return batches_of(merged.results.take(order))

    def _deletions(
        self,
        merged: Merged,
        places: Mapping[_Id, int],
        changes: Sequence[_Change],
        outgrown: _Kept,
    ) -> list[Batch]:
        """Return deletions for outgrown sessions whose key differs from the larger session's."""
        if not outgrown:
            return []
        keys, has_result = merged.results["key"].to_pylist(), merged.has_result.tolist()
        larger = {id_: places[change.id] for change in changes for id_, _ in change.former}
        gone = []
        for id_, _ in outgrown:
            place, now = places[id_], larger[id_]
            if keys[place] is not None and not (has_result[now] and keys[now] == keys[place]):
                gone.append((place, id_.window.end))
        results = merged.results.take(pa.array([place for place, _ in gone], pa.int64()))
        ends = pa.array([end for _, end in gone], results.schema.field("timestamp").type)
        for name in results.column_names:
            column = pa.nulls(len(results), results.schema.field(name).type)
            if name == "timestamp":
                column = pc.fill_null(results[name], ends)
            if name != "key":
                results = with_items(results, name, column)
        return batches_of(results)


def _change(key: bytes, session: Session, placed: Placed) -> _Change:
    former = [placed.kept[part] for part in session.parts if part < len(placed.kept)]
    return _Change(Windowed(key, Window(session.start, session.last)), session.parts, former)


def _taken(merged: Merged, places: Sequence[int]) -> Merged:
    """Return a selection of merged rows."""
    order = np.asarray(places, np.int64)
    taken = pa.array(order)
    return Merged(
        merged.rows.take(taken),
        merged.results.take(taken),
        merged.has_result[order],
        merged.places[order],
        merged.marks[order],
        merged.is_former[order],
    )

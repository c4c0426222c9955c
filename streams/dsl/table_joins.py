"""Joins of two tables by their keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.change import OUT_OF_ORDER, Change
from kafka_pipeline.streams.dsl.common_origins import BEGIN, END, add_ends
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.joining import (
    LEFT,
    RIGHT,
    Joiner,
    JoinFunction,
    JoinKind,
    add_sides,
)
from kafka_pipeline.streams.dsl.stateless import selected
from kafka_pipeline.streams.dsl.table_values import (
    Found,
    TableReader,
    TableStore,
    TableValues,
    TimestampedTable,
    open_table_store,
    table_store,
)
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.event_time.step_time import EXPIRED_LOOKED_UP
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Headers, Record, items_of
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import ValueAndTimestamp


@dataclass(frozen=True, slots=True)
class TableSide:
    """One of the two tables: how it is looked up, and whether it is versioned."""

    values: TableValues
    is_versioned: bool


@dataclass(frozen=True, slots=True)
class JoinTables(Operation):
    """Joins two tables; `store` keeps the results if it is given, and has the step's name.

    `origins` are the tables that both sides come from.
    """

    needs_time = False

    kind: JoinKind
    joiner: JoinFunction
    sides: tuple[TableSide, TableSide]
    store: str | None
    origins: tuple[Step, ...]

    @property
    def verb(self) -> str:
        return self.kind.value

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores: those of both tables, and the step's own."""
        own = () if self.store is None else (self.store,)
        return (*_stores_of(*(side.values for side in self.sides)), *own)

    def stores_reached_from(self, parent: int) -> tuple[str, ...]:
        """Leave out the store of the table that has changed: only the other one is looked up."""
        own = () if self.store is None else (self.store,)
        return (*self.sides[1 - parent].values.stores, *own)

    def needs_old_values_of(self, parent: int, sends_old_values: bool) -> bool:
        """Return True for a side whose values have results without a partner, or common origins.

        The result is silent if there was none before and there is none now.
        """
        return sends_old_values or self.kind.keeps(parent) or bool(self.origins)

    @property
    def common_origins(self) -> tuple[Step, ...]:
        """The tables that both sides come from."""
        return self.origins

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a node for each side, and the one that joins."""
        parents = [*add_sides(step, compiler), *add_ends(compiler, step)]
        if self.store is not None:
            compiler.add_store(
                table_store(self.store, step.key_serde, step.value_serde, after_key=step.after_key)
            )
        sends_old = compiler.sends_old_values(step)
        compiler.runs(
            step,
            partial(CommonOriginJoiner, self, sends_old, step.key_serde)
            if self.origins
            else partial(TableJoiner, self, sends_old),
            parents,
        )


class TableJoiner(EitherWay):
    """Joins a change of one table with the value of the other one.

    The time of a result is the larger one of the two. Changes of a versioned table that come out of
    order change nothing (KIP-914).
    """

    def __init__(self, join: JoinTables, sends_old: bool) -> None:
        self._join = join
        self._joiner = join.joiner
        self._sends_old = sends_old

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        join = self._join
        left, right = (side.values.open(context) for side in join.sides)
        self._tables: tuple[TableReader, TableReader] = (left, right)
        self._skips_older = tuple(side.is_versioned for side in join.sides)
        self._keeps = (join.kind.keeps(LEFT), join.kind.keeps(RIGHT))
        self._store: TableStore | None = (
            None if join.store is None else open_table_store(context, join.store, join.verb)
        )

    def process(self, batch: Batch) -> None:
        store = self._store
        if store is not None and not isinstance(store, TimestampedTable):
            self.process_each(batch)
            return
        keys, pairs = items_of(batch.keys), items_of(batch.values)
        # The changes of a batch come from one side: `FromSide` has made it.
        other_table = self._tables[1 - pairs[0][0]]
        rows = zip(keys, pairs, items_of(batch.timestamps), other_table.get_all(keys), strict=True)
        found = [self._result(*row) for row in rows]
        kept = [each is not None for each in found]
        batch = selected(batch, kept)
        keys, results = items_of(batch.keys), [each for each in found if each is not None]
        changes, times = [change for change, _ in results], [time for _, time in results]
        if store is not None and changes:
            store.put_all(keys, [change.new for change in changes], times, gets_old=False)
            for change in changes:
                change.is_latest = True
        self.context.forward(Batch(keys, changes, times, batch.headers, None, batch.clocks))

    def process_record(self, record: Record) -> None:
        side, _ = record.value
        found = self._tables[1 - side].get(record.key)
        result = self._result(record.key, record.value, record.timestamp, found)
        if result is not None:
            self._forward(record.key, *result, record.headers)

    def _result(
        self, key: Any, value: tuple[int, Change], timestamp: int, found: Found
    ) -> tuple[Change, int] | None:
        """Return the result of a side's change and what the other table has, with its time."""
        side, change = value
        if self._skips_older[side] and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return None
        if self._tables[1 - side].has_expired(key):
            self.context.drop(EXPIRED_LOOKED_UP)
        other = None
        if found is not None:
            other = found.value
            timestamp = max(timestamp, found.timestamp)
        elif not self._keeps[side] or (change.new is None and change.old is None):
            return None
        new = self._joined(side, change.new, other)
        old = self._joined(side, change.old, other) if self._sends_old else None
        return Change(new, old, change.is_latest), timestamp

    def _forward(self, key: Any, change: Change, timestamp: int, headers: Headers) -> None:
        if self._store is not None:
            self._store.put(key, change.new, timestamp)
            change.is_latest = True
        self.context.forward(Record(key, change, timestamp, headers))

    def _joined(self, side: int, value: Any, other: Any) -> Any:
        if value is None and (other is None or not self._keeps[1 - side]):
            return None
        return self._joiner(value, other) if side == LEFT else self._joiner(other, value)


class CommonOriginJoiner(TableJoiner):
    """Makes one result of all that a change of a common origin does to either side.

    The result has the headers of the last change that came. A change that comes while no origin is
    in hand, such as one that `suppress` lets go, is joined at once.
    """

    def __init__(self, join: JoinTables, sends_old: bool, key_serde: Serde[Any]) -> None:
        super().__init__(join, sends_old)
        self._write_key = key_serde.serialize

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._watched = context.get_state_store(self._join.stores()[0])
        self._generation: int | None = None

    def process(self, batch: Batch) -> None:
        self.process_each(batch)

    def process_record(self, record: Record) -> None:
        if self._watched.generation != self._generation:
            # The engine has undone what began.
            self._generation = self._watched.generation
            self._depth = 0
            self._pending: dict[bytes, _Pending] = {}
        side, change = record.value
        if side == BEGIN:
            self._depth += 1
        elif side == END:
            self._depth -= 1
            if not self._depth and self._pending:
                pending, self._pending = self._pending, {}
                for each in pending.values():
                    self._settle(each)
        elif not self._depth:
            super().process_record(record)
        elif self._skips_older[side] and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
        else:
            place = self._write_key(record.key)
            if place not in self._pending:
                self._pending[place] = _Pending(record)
            self._pending[place].add(side, record)

    def _settle(self, pending: _Pending) -> None:
        left, right = (self._change(pending, side) for side in (LEFT, RIGHT))
        had = self._is_result(left.old, right.old)
        has = self._is_result(left.new, right.new)
        if not had and not has:
            return
        old = self._joiner(left.old, right.old) if had and self._sends_old else None
        new = self._joiner(left.new, right.new) if has else None
        self._forward(pending.key, Change(new, old), pending.timestamp, pending.headers)

    def _change(self, pending: _Pending, side: int) -> Change:
        """Return the change of a side; of one that has not changed, the value it has."""
        change = pending.changes[side]
        if change is not None:
            return change
        found = self._tables[side].get(pending.key)
        if found is None:
            return Change(None)
        pending.timestamp = max(pending.timestamp, found.timestamp)
        return Change(found.value, found.value)

    def _is_result(self, left: Any, right: Any) -> bool:
        """Return whether two values, or the lack of one, have a result."""
        if left is None:
            return right is not None and self._keeps[RIGHT]
        return right is not None or self._keeps[LEFT]


class _Pending:
    """What a change of a common origin has done to both sides of a key so far."""

    def __init__(self, record: Record) -> None:
        self.key = record.key
        self.timestamp = record.timestamp
        self.headers: Headers = ()
        self.changes: list[Change | None] = [None, None]

    def add(self, side: int, record: Record) -> None:
        """Take a change of a side into account; the old value is that of its first one."""
        change, before = record.value[1], self.changes[side]
        self.changes[side] = change if before is None else Change(change.new, before.old)
        self.timestamp = max(self.timestamp, record.timestamp)
        self.headers = record.headers


@dataclass(frozen=True, slots=True)
class JoinedValues(TableValues):
    """The values of a join without a store: those of both tables, joined when looked up."""

    kind: JoinKind
    joiner: Joiner
    left: TableValues
    right: TableValues

    @property
    def stores(self) -> tuple[str, ...]:
        return _stores_of(self.left, self.right)

    def open(self, context: ProcessorContext) -> TableReader:
        return _Joined(self.kind, self.joiner, self.left.open(context), self.right.open(context))


class _Joined(TableReader):
    def __init__(
        self, kind: JoinKind, joiner: Joiner, left: TableReader, right: TableReader
    ) -> None:
        self._joiner = joiner
        self._left = left
        self._right = right
        self._keeps = (kind.keeps(LEFT), kind.keeps(RIGHT))

    def get(self, key: Any) -> Found:
        left = self._left.get(key)
        if left is None and not self._keeps[RIGHT]:
            return None
        right = self._right.get(key)
        if right is None and (left is None or not self._keeps[LEFT]):
            return None
        values = [None if found is None else found.value for found in (left, right)]
        joined = self._joiner.join(*values)
        if joined is None:
            return None
        return ValueAndTimestamp(joined, max(f.timestamp for f in (left, right) if f is not None))

    def has_expired(self, key: Any) -> bool:
        return self._left.has_expired(key) or self._right.has_expired(key)


def _stores_of(*values: TableValues) -> tuple[str, ...]:
    return tuple(dict.fromkeys(store for each in values for store in each.stores))

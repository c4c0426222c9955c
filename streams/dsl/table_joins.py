"""Joins of two tables by their keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from streams.dsl.change import Change
from streams.dsl.graph import Compiling, Operation, Step
from streams.dsl.joining import LEFT, RIGHT, Joiner, JoinFunction, JoinKind, add_sides
from streams.dsl.table_values import (
    Found,
    TableReader,
    TableStore,
    TableValues,
    open_table_store,
    table_store,
)
from streams.processor import Processor, ProcessorContext
from streams.record import Record
from streams.stores import ValueAndTimestamp

OUT_OF_ORDER = "out of order"
"""The reason under which changes of versioned tables that are not the latest are dropped."""


@dataclass(frozen=True, slots=True)
class TableSide:
    """One of the two tables: how it is looked up, and whether it is versioned."""

    values: TableValues
    is_versioned: bool


@dataclass(frozen=True, slots=True)
class JoinTables(Operation):
    """Joins two tables; `store` keeps the results if it is given, and has the step's name."""

    kind: JoinKind
    joiner: JoinFunction
    sides: tuple[TableSide, TableSide]
    store: str | None

    @property
    def verb(self) -> str:
        return self.kind.value

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores: those of both tables, and the step's own."""
        own = () if self.store is None else (self.store,)
        return (*_stores_of(*(side.values for side in self.sides)), *own)

    def needs_old_values_of(self, parent: int, sends_old_values: bool) -> bool:
        """Return True for a side whose values have results without a partner.

        The result is silent if there was none before and there is none now.
        """
        return sends_old_values or self.kind.keeps(parent)

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add a node for each side, and the one that joins."""
        sides = add_sides(step, compiler)
        if self.store is not None:
            compiler.add_store(
                table_store(self.store, step.key_serde, step.value_serde, after_key=step.after_key)
            )
        compiler.builder.add_processor(
            step.name,
            partial(TableJoiner, self, compiler.sends_old_values(step)),
            sides,
            stores=self.stores(),
        )
        compiler.produces(step, step.name)


class TableJoiner(Processor):
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
        self._others: tuple[TableReader, TableReader] = (right, left)
        self._skips_older = tuple(side.is_versioned for side in join.sides)
        self._keeps = (join.kind.keeps(LEFT), join.kind.keeps(RIGHT))
        self._store: TableStore | None = (
            None if join.store is None else open_table_store(context, join.store, join.verb)
        )

    def process(self, record: Record) -> None:
        side, change = record.value
        if self._skips_older[side] and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        key, timestamp, other = record.key, record.timestamp, None
        found = self._others[side].get(key)
        if found is not None:
            other = found.value
            timestamp = max(timestamp, found.timestamp)
        elif not self._keeps[side] or (change.new is None and change.old is None):
            return
        new = self._joined(side, change.new, other)
        old = self._joined(side, change.old, other) if self._sends_old else None
        is_latest = change.is_latest
        if self._store is not None:
            self._store.put(key, new, timestamp)
            is_latest = True
        self.context.forward(Record(key, Change(new, old, is_latest), timestamp, record.headers))

    def _joined(self, side: int, value: Any, other: Any) -> Any:
        if value is None and (other is None or not self._keeps[1 - side]):
            return None
        return self._joiner(value, other) if side == LEFT else self._joiner(other, value)


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


def _stores_of(*values: TableValues) -> tuple[str, ...]:
    return tuple(dict.fromkeys(store for each in values for store in each.stores))

"""Steps of a table: its source, views of it, and the ways from and to a stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.change import OUT_OF_ORDER, Change, ChangeColumn, column_of_latest
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.stateless import (
    NULL_KEY,
    Part,
    Stateless,
    repeated,
    selected,
    unused,
    with_keys,
)
from kafka_pipeline.streams.dsl.table_values import (
    TableStore,
    TimestampedTable,
    open_table_store,
    table_store,
)
from kafka_pipeline.streams.dsl.topics import topics_read_for
from kafka_pipeline.streams.durations import Milliseconds, whole_ms_or_none
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.engine.nodes import NamedPart
from kafka_pipeline.streams.errors import SerializationError, StreamsError, reworded
from kafka_pipeline.streams.event_time.step_time import ENDS_MS, NO_TIME, FollowsTime
from kafka_pipeline.streams.processor import BatchProcessor, Processor, ProcessorContext
from kafka_pipeline.streams.record import Batch, Record, items_of
from kafka_pipeline.streams.serdes import Serde

Compute = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Materialized(Operation):
    """A step that keeps a table in a store of its own, which has the name of the step."""

    method: str
    store: str
    history_retention_ms: int | None = None

    @property
    def verb(self) -> str:
        return self.method

    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    def compile(self, step: Step, compiler: Compiling) -> None:
        store = table_store(
            self.store,
            step.key_serde,
            step.value_serde,
            self.history_retention_ms,
            after_key=step.after_key,
        )
        compiler.add_store(store.of_topics(topics_read_for(step)).of_parts(self.parts))
        compiler.runs(step, self.supplier(step, compiler))

    @property
    def keeps_history(self) -> bool:
        return self.history_retention_ms is not None

    @property
    def parts(self) -> tuple[str, ...]:
        """What a value consists of; see `AggregateFunctions`."""
        return ()

    @abstractmethod
    def supplier(self, step: Step, compiler: Compiling) -> Callable[[], Processor | BatchProcessor]:
        """Return the function that makes the processor."""


def history_ms(verb: str, store: str, given: Milliseconds | None) -> int | None:
    """Return the `history_retention_ms` that a method got for the table of this store."""
    return whole_ms_or_none(f'{verb} "{store}"', "history_retention_ms", given, 0)


class FillTable(Materialized):
    """Makes a table of records: the last value of each key counts, and `None` deletes."""

    needs_time = False

    __slots__ = ()

    def supplier(self, step: Step, compiler: Compiling) -> Callable[[], Processor | BatchProcessor]:
        return partial(TableFiller, self.store, self.method, compiler.sends_old_values(step))


class KeepsTable(EitherWay, FollowsTime):
    """Keeps a table in a store of its own, and forwards the changes.

    Where several tasks send the records, a history ends by event time: the fastest of them does not
    decide how long a version can be looked up. When time goes on, it may leap over the whole
    history, and records that waited for it look up versions of before: so a history ends by the
    time before the last one. Records that steps ahead of a lookup have held back are older by so
    much: the history goes that far back from the time of the lookup.
    """

    def __init__(self, store: str, verb: str, sends_old: bool) -> None:
        self._name = store
        self._verb = verb
        self._sends_old = sends_old

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = open_table_store(context, self._name, self._verb)
        self._passed: int = NO_TIME
        if not context.task_time.follows_records:
            self._store.follow()

    def time_passed(self, time: int) -> None:
        if not self.context.task_time.follows_records:
            self._store.go_on(self._passed - self.context.store_hold_ms - ENDS_MS)
            self._passed = time


class TableFiller(KeepsTable):
    """Puts records into a table's store, and forwards the changes."""

    def process(self, batch: Batch) -> None:
        store = self._store
        if not isinstance(store, TimestampedTable):
            # Some versions are dropped, and some are not the latest one.
            self.process_each(batch)
            return
        batch = with_keys(batch, self.context)
        keys, values, times = map(items_of, (batch.keys, batch.values, batch.timestamps))
        old = store.put_all(keys, values, times, self._sends_old)
        self.context.forward(batch.with_values(ChangeColumn(values, old)))

    def process_record(self, record: Record) -> None:
        key = record.key
        if key is None:
            self.context.drop(NULL_KEY)
            return
        old = self._store.get(key) if self._sends_old else None
        is_latest = self._store.put(key, record.value, record.timestamp)
        if is_latest is not None:
            change = Change(record.value, None if old is None else old.value, is_latest)
            self.context.forward(record.with_value(change))


class View(NamedPart):
    """What a view makes of a value of its parent."""

    def __init__(self, name: str, compute: Compute) -> None:
        self.name = name
        self._compute = compute

    def value_of(self, key: Any, value: Any) -> Any:
        """Return the view's value, or `None`."""
        return None if value is None else self._compute(key, value)


class ViewProcessor(EitherWay):
    """Forwards the changes of a view; with a store, keeps the view there.

    With `skips_nothing`, leaves out changes from nothing to nothing. Old values come from the
    parent if `parent_sends_old`, else from the store. The store has no versions: a change that is
    not the latest of its key is dropped instead of replacing a newer value there (KAFKA-14834).
    """

    def __init__(
        self,
        view: View,
        store: str | None,
        verb: str,
        *,
        sends_old: bool,
        parent_sends_old: bool,
        skips_nothing: bool,
    ) -> None:
        self._view = view
        self._name = store
        self._verb = verb
        self._sends_old = sends_old
        self._parent_sends_old = parent_sends_old
        self._skips_nothing = skips_nothing

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = (
            None if self._name is None else open_table_store(context, self._name, self._verb)
        )

    def process(self, batch: Batch) -> None:
        changes = column_of_latest(batch.values)
        if changes is None:
            self.process_each(batch)
            return
        keys, value_of = items_of(batch.keys), self._view.value_of
        news = [value_of(key, new) for key, new in zip(keys, changes.new, strict=True)]
        olds: Sequence[Any] = [None] * len(news)
        if self._parent_sends_old:
            olds = [value_of(key, old) for key, old in zip(keys, changes.old, strict=True)]
        batch = batch.with_values(ChangeColumn(news, olds))
        if self._skips_nothing:
            pairs = zip(news, olds, strict=True)
            batch = selected(batch, [new is not None or old is not None for new, old in pairs])
        if self._store is not None:
            batch = self._kept(self._store, batch)
        if len(batch):
            self.context.forward(batch)

    def _kept(self, store: TableStore, batch: Batch) -> Batch:
        """Put the new values into the store; return the batch with old values, if these matter."""
        assert isinstance(store, TimestampedTable), "the store of a view has no versions"
        changes = batch.values
        assert isinstance(changes, ChangeColumn)
        keys, times = items_of(batch.keys), items_of(batch.timestamps)
        gets_old = self._sends_old and not self._parent_sends_old
        olds = store.put_all(keys, changes.new, times, gets_old)
        return batch.with_values(ChangeColumn(changes.new, olds)) if gets_old else batch

    def process_record(self, record: Record) -> None:
        key, change = record.key, record.value
        value_of, store = self._view.value_of, self._store
        if store is not None and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        new, old = value_of(key, change.new), None
        if self._parent_sends_old:
            old = value_of(key, change.old)
        elif self._sends_old and store is not None:
            found = store.get(key)
            old = None if found is None else found.value
        if self._skips_nothing and new is None and old is None:
            return
        if store is not None:
            store.put(key, new, record.timestamp)
        self.context.forward(record.with_value(Change(new, old, change.is_latest)))


@dataclass(frozen=True, slots=True)
class ViewTable(Operation):
    """A table whose values come from those of its parent, with a store or without.

    `compute` returns the value, or `None` for none. `is_filter` is for `filter` and `filter_not`.
    """

    needs_time = False

    method: str
    compute: Compute
    store: str | None
    is_filter: bool
    is_versioned: bool

    @property
    def verb(self) -> str:
        return self.method

    def stores(self) -> tuple[str, ...]:
        return () if self.store is None else (self.store,)

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return whether old values must come from the parent.

        They do if there is no store for them. A filter needs them as well to leave out keys that
        have never passed it (KAFKA-10077); those of a versioned table, where the old value may be
        that of another time, pass.
        """
        return self._skips_nothing or (sends_old_values and self.store is None)

    @property
    def _skips_nothing(self) -> bool:
        return self.is_filter and not self.is_versioned

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor, and the store if there is one."""
        if self.store is not None:
            compiler.add_store(
                table_store(self.store, step.key_serde, step.value_serde, after_key=step.after_key)
            )
        sends_old = compiler.sends_old_values(step)
        make = partial(
            ViewProcessor,
            View(step.name, self.compute),
            self.store,
            self.method,
            sends_old=sends_old,
            parent_sends_old=self.needs_old_values(sends_old),
            skips_nothing=self._skips_nothing,
        )
        compiler.runs(step, make)


class NewValuePart(Part):
    """Makes records of changes: the new value counts."""

    def receive(self, record: Record) -> None:
        self.forward(record.with_value(record.value.new))

    def columns(self, batch: Batch) -> Batch:
        values = batch.values
        if isinstance(values, ChangeColumn):
            return batch.with_values(values.new)
        return batch.with_values([change.new for change in items_of(values)])


def to_stream() -> Stateless:
    """Return the step from a table to the stream of its changes."""
    return Stateless("to_stream", NewValuePart, unused)


class GroupTable(NamedPart):
    """Maps a change to the changes of the groups that it belongs to."""

    def __init__(self, name: str, function: Compute) -> None:
        self.name = name
        self._function = function

    def pair_of(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        """Return the key and value within the group; `None` if the value belongs to no group."""
        if value is None:
            return None
        pair = self._function(key, value)
        if pair is None:
            return None
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise StreamsError(
                f'the function of group_by "{self.name}" returned a {type(pair).__name__}: it must '
                "return a pair (key, value), or None for a value that belongs to no group"
            )
        return None if pair[0] is None or pair[1] is None else pair


class GroupTableProcessor(EitherWay):
    """Forwards changes under the keys of their groups: one record if the group stays (KIP-904).

    A group is its key's bytes. With `==`, a row that moves from group 1 to group True would be
    taken out of the wrong one (KAFKA-12446).
    """

    def __init__(self, grouping: GroupTable, is_versioned: bool, key_serde: Serde[Any]) -> None:
        self._grouping = grouping
        self._is_versioned = is_versioned
        self._is_same_key = same_by(key_serde.serialize)

    def process(self, batch: Batch) -> None:
        changes = column_of_latest(batch.values)
        if changes is None:
            self.process_each(batch)
            return
        counts, groups, mapped = self._of_groups(items_of(batch.keys), changes)
        self.context.forward(repeated(batch, counts, groups, mapped))

    def process_record(self, record: Record) -> None:
        change = record.value
        if self._is_versioned and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        only = ChangeColumn((change.new,), (change.old,))
        _, groups, mapped = self._of_groups((record.key,), only)
        for group, new, old in zip(groups, mapped.new, mapped.old, strict=True):
            value = Change(new, old, change.is_latest)
            self.context.forward(Record(group, value, record.timestamp, record.headers))

    def _of_groups(
        self, keys: Sequence[Any], changes: ChangeColumn
    ) -> tuple[list[int], list[Any], ChangeColumn]:
        """Return in how many groups each change is, the keys of these, and their changes."""
        pair_of, stays = self._grouping.pair_of, self._is_same_group
        groups, news, olds, counts = list[Any](), list[Any](), list[Any](), list[int]()
        for key, to, origin in zip(keys, changes.new, changes.old, strict=True):
            new, old = pair_of(key, to), pair_of(key, origin)
            before = len(groups)
            if new is not None and old is not None and stays(new[0], old[0]):
                groups.append(new[0])
                news.append(new[1])
                olds.append(old[1])
            else:
                if old is not None:
                    groups.append(old[0])
                    news.append(None)
                    olds.append(old[1])
                if new is not None:
                    groups.append(new[0])
                    news.append(new[1])
                    olds.append(None)
            counts.append(len(groups) - before)
        return counts, groups, ChangeColumn(news, olds)

    def _is_same_group(self, new: Any, old: Any) -> bool:
        try:
            return self._is_same_key(new, old)
        except SerializationError as error:
            raise reworded(
                error,
                f'This is a key that the function of group_by "{self._grouping.name}" returned: '
                "give group_by another key_serde",
            ) from error


@dataclass(frozen=True, slots=True)
class MapToGroups(Operation):
    """Gives the changes of a table the keys of their groups, ahead of a repartition."""

    verb = "group_by"

    function: Compute
    is_versioned: bool
    label: str | None
    """The name of the step as errors show it."""

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return True: what a change takes away is subtracted from its group."""
        return True

    def compile(self, step: Step, compiler: Compiling) -> None:
        grouping = GroupTable(self.label or step.name, self.function)
        make = partial(GroupTableProcessor, grouping, self.is_versioned, step.key_serde)
        compiler.runs(step, make)


Same = Callable[[Any, Any], bool]


def same_by(write: Callable[[Any], bytes]) -> Same:
    """Return a function that compares two keys by their bytes, as topics and stores do.

    Python's `==` differs: `1 == True == 1.0`, `0.0 == -0.0`, and NaN does not equal itself. The
    function raises what `write` raises.
    """

    def is_same(a: Any, b: Any) -> bool:
        if a is b:
            return True
        # Equal strings have equal bytes, and need not be written.
        if a.__class__ is str and b.__class__ is str and a == b:
            return True
        return write(a) == write(b)

    return is_same

"""The steps of a foreign-key join of two tables, and the topics between them (KIP-213).

    left table -> subscribe -> topic -> keep  -> topic -> resolve -> results
                             right table -> answer -^

Each row of the left table subscribes to its foreign key, in the task that owns that key of the
right table. That task stores the subscription, and answers it at once and after each change of the
value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

from kafka_pipeline.streams import serdes
from kafka_pipeline.streams.clocks import NO_CLOCK
from kafka_pipeline.streams.dsl.change import OUT_OF_ORDER
from kafka_pipeline.streams.dsl.foreign_key_left import (
    NULL_FOREIGN_KEY,
    ForeignKeyJoin,
    ResolveAnswers,
    Subscribe,
)
from kafka_pipeline.streams.dsl.foreign_key_messages import (
    Instruction,
    answer,
    foreign_key_prefix,
    partition_of_answer,
    partition_of_subscription,
    parts_of_subscription,
)
from kafka_pipeline.streams.dsl.graph import Compiling, Graph, Operation, Step
from kafka_pipeline.streams.dsl.table_steps import FillTable
from kafka_pipeline.streams.dsl.table_values import TableSerdes, TableValues, unwritable
from kafka_pipeline.streams.dsl.topics import Repartition, repartition_topic, topics_read_for
from kafka_pipeline.streams.errors import SerializationError
from kafka_pipeline.streams.partitioning import ColumnPartitioner
from kafka_pipeline.streams.processor import BatchProcessor, Processor, ProcessorContext
from kafka_pipeline.streams.record import Batch, Headers, Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.stores import KeyValueStore, StoreBuilder, key_value
from kafka_pipeline.streams.stores.bytes_store import Changes


@dataclass(frozen=True, slots=True)
class RightTable:
    """The right table of a join."""

    step: Step
    values: TableValues
    is_versioned: bool


def add_foreign_key_join(
    graph: Graph,
    left: Step,
    right: RightTable,
    join: ForeignKeyJoin,
    value_serde: Serde[Any] | None,
) -> Step:
    """Add the steps of a join; return the last one, which keeps the results under its name."""
    name = join.name
    sent = graph.add(
        Subscribe(join),
        [left],
        f"{name}-subscribe",
        key_serde=serdes.bytes,
        value_serde=serdes.bytes,
    )
    subscribed = graph.add(
        Repartition(partitioner=_ToForeignKeys()), [sent], f"{name}-subscriptions"
    )
    answers = f"{name}-answers"
    subscriptions = Subscriptions(
        join.where,
        f"{name}-subscriptions",
        join.right_serdes,
        repartition_topic(answers),
        left.after_key,
        (topics_read_for(left), topics_read_for(right.step)),
    )
    kept = graph.add(KeepSubscriptions(subscriptions, right.values), [subscribed], f"{name}-keep")
    changed = graph.add(
        AnswerChanges(subscriptions, right.is_versioned),
        [right.step],
        f"{name}-answer",
        key_serde=serdes.bytes,
        value_serde=serdes.bytes,
    )
    to_rows = Repartition(partitioner=_ToRows(), by_key=False)
    answered = graph.add(to_rows, [kept, changed], answers)
    resolved = graph.add(
        ResolveAnswers(join, left.after_key),
        [answered],
        f"{name}-resolve",
        key_serde=left.key_serde,
        value_serde=value_serde or graph.value_serde,
    )
    return graph.add(FillTable(join.kind.value, name), [resolved], name)


class _ToForeignKeys(ColumnPartitioner):
    """Sends subscriptions by foreign key; a row without one goes to any task, which can answer."""

    def of_columns(
        self, keys: Sequence[Any], values: Sequence[Any], num_partitions: int
    ) -> list[int]:
        return [
            partition_of_subscription(value) % num_partitions if key is None else -1
            for key, value in zip(keys, values, strict=True)
        ]


class _ToRows(ColumnPartitioner):
    """Sends answers to the partition of the row, which need not be the default one for its key."""

    def of_columns(
        self, keys: Sequence[Any], values: Sequence[Any], num_partitions: int
    ) -> list[int]:
        return list(map(partition_of_answer, values))


_ANSWERED_WITHOUT_VALUE = frozenset((Instruction.END, Instruction.ANSWER))


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The subscriptions of a join, as bytes. The serdes are those of the right table.

    A subscription's key in the store is the length of the foreign key, the foreign key and the row
    key. Answers go to the topic `answers`. The last `after_row_key` bytes of a row key do not
    affect its partition. `topics` are those that the left and the right table come from.
    """

    where: str
    store: str
    serdes: TableSerdes
    answers: str
    after_row_key: int
    topics: tuple[Sequence[str], Sequence[str]]

    def definition(self) -> StoreBuilder[bytes, bytes]:
        """Return the definition of the store."""
        store = key_value(self.store, serdes.bytes, serdes.bytes).spread(
            "subscriptions",
            has_length=True,
            answers=self.answers,
            after_row_key=self.after_row_key,
        )
        return store.of_topics(*self.topics)


@dataclass(frozen=True, slots=True)
class KeepSubscriptions(Operation):
    """Stores each subscription and answers it."""

    verb = "join"

    subscriptions: Subscriptions
    right: TableValues

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores: the step's own, and those of the right table."""
        return (self.subscriptions.store, *self.right.stores)

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.add_store(self.subscriptions.definition())
        compiler.runs(step, partial(Keeper, self.subscriptions, self.right))


class Keeper(BatchProcessor):
    """Stores subscriptions, and answers them with the current values of the right table.

    The timestamp of an answer is the later one of the subscription and the value.
    """

    def __init__(self, subscriptions: Subscriptions, right: TableValues) -> None:
        self._subscriptions = subscriptions
        self._right = right

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(
            self._subscriptions.store
        )
        serdes = self._subscriptions.serdes
        self._table = self._right.open(context).serialized(serdes.key, serdes.value)

    def process(self, batch: Batch) -> None:
        wanted = [key for key in dict.fromkeys(batch.keys) if key is not None]
        prefixes = {key: foreign_key_prefix(key) for key in wanted}
        values = dict(zip(wanted, self._table.get_all(wanted), strict=True))
        kept: Changes = {}
        answers: list[tuple[bytes, bytes, int, Headers | None, int]] = []
        headers, clocks = batch.headers or repeat(None), batch.clocks or repeat(NO_CLOCK)
        for foreign_key, subscription, timestamp, of_one, clock in zip(
            batch.keys, batch.values, batch.timestamps, headers, clocks, strict=False
        ):
            instruction, key, head = parts_of_subscription(subscription)
            if foreign_key is not None:
                ends = instruction <= Instruction.END
                kept[prefixes[foreign_key] + key] = None if ends else subscription
                found = values[foreign_key]
            elif instruction == Instruction.ANSWER:
                found = None
            else:
                self.context.drop(NULL_FOREIGN_KEY)
                continue
            if found is not None:
                if instruction == Instruction.END_SILENTLY:
                    continue
                value = None if instruction == Instruction.END else found[0]
                time = timestamp if timestamp > found[1] else found[1]
                answers.append((key, answer(head, value), time, of_one, clock))
            elif instruction in _ANSWERED_WITHOUT_VALUE:
                answers.append((key, answer(head, None), timestamp, of_one, clock))
        self._store.put_serialized(kept)
        if answers:
            keys, messages, times, of_each, known = map(list, zip(*answers, strict=True))
            found_headers = of_each if batch.headers else None
            found_clocks = list(map(max, known, times)) if batch.clocks else None
            self.context.forward(Batch(keys, messages, times, found_headers, clocks=found_clocks))


@dataclass(frozen=True, slots=True)
class AnswerChanges(Operation):
    """Answers the subscriptions of a key of the right table when its value changes."""

    verb = "join"

    subscriptions: Subscriptions
    is_versioned: bool

    def stores(self) -> tuple[str, ...]:
        return (self.subscriptions.store,)

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return True: views then leave out changes from nothing to nothing."""
        return True

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.runs(step, partial(Answerer, self.subscriptions, self.is_versioned))


class Answerer(Processor):
    """Sends the new value of a key to its subscribers, the rows with that foreign key."""

    def __init__(self, subscriptions: Subscriptions, is_versioned: bool) -> None:
        self._subscriptions = subscriptions
        self._is_versioned = is_versioned

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[bytes, bytes] = context.get_state_store(
            self._subscriptions.store
        )

    def process(self, record: Record) -> None:
        change = record.value
        if self._is_versioned and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        table = self._subscriptions.serdes
        try:
            prefix = foreign_key_prefix(table.key.serialize(record.key))
            value = None if change.new is None else table.value.serialize(change.new)
        except SerializationError as error:
            raise unwritable(self._subscriptions.where, error) from error
        with self._store.prefix_scan(prefix, serdes.bytes) as found:
            for _, subscription in found:
                _, key, head = parts_of_subscription(subscription)
                self.context.forward(
                    Record(key, answer(head, value), record.timestamp, record.headers)
                )

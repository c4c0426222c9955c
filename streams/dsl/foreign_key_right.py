"""The right side of a foreign-key join: it keeps subscriptions, and answers them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from streams import serdes
from streams.dsl.foreign_key_left import NULL_FOREIGN_KEY
from streams.dsl.foreign_key_messages import (
    Answer,
    Instruction,
    Subscription,
    foreign_key_prefix,
    subscription_serde,
)
from streams.dsl.graph import Compiling, Operation, Step
from streams.dsl.table_joins import OUT_OF_ORDER
from streams.dsl.table_values import TableValues, unwritable
from streams.errors import SerializationError
from streams.processor import Processor, ProcessorContext
from streams.record import Record
from streams.serdes import Serde
from streams.stores import KeyValueStore, StoreBuilder, key_value


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """The subscriptions of a join. The serdes are those of the keys of the right and left table."""

    where: str
    store: str
    foreign_key_serde: Serde[Any]
    key_serde: Serde[Any]

    def definition(self) -> StoreBuilder[bytes, Subscription]:
        """Return the definition of the store."""
        return key_value(self.store, serdes.bytes, subscription_serde(self.key_serde))

    def prefix(self, foreign_key: Any) -> bytes:
        """Return what the places of the subscriptions of a foreign key begin with."""
        return foreign_key_prefix(self.foreign_key_serde.serialize(foreign_key))

    def place(self, foreign_key: Any, key: Any) -> bytes:
        """Return the place of the subscription of a row to a foreign key."""
        return self.prefix(foreign_key) + self.key_serde.serialize(key)


@dataclass(frozen=True, slots=True)
class KeepSubscriptions(Operation):
    """Keeps subscriptions as they come, and answers them."""

    verb = "join"

    subscriptions: Subscriptions
    right: TableValues

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores: the step's own, and those of the right table."""
        return (self.subscriptions.store, *self.right.stores)

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the store and the processor."""
        compiler.add_store(self.subscriptions.definition())
        compiler.builder.add_processor(
            step.name,
            partial(Keeper, self.subscriptions, self.right),
            compiler.parents(step),
            stores=self.stores(),
        )
        compiler.produces(step, step.name)


class Keeper(Processor):
    """Keeps a subscription, and answers it with the value that the right table has.

    The time of an answer is the larger one of subscription and value.
    """

    def __init__(self, subscriptions: Subscriptions, right: TableValues) -> None:
        self._subscriptions = subscriptions
        self._right = right

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[bytes, Subscription] = context.get_state_store(
            self._subscriptions.store
        )
        self._table = self._right.open(context)

    def process(self, record: Record) -> None:
        foreign_key, subscription = record.key, record.value
        instruction = subscription.instruction
        found = None
        if foreign_key is not None:
            self._keep(foreign_key, subscription)
            found = self._table.get(foreign_key)
        elif instruction is not Instruction.ANSWER:
            self.context.drop(NULL_FOREIGN_KEY)
            return
        if instruction is Instruction.END_SILENTLY:
            return
        if instruction is Instruction.ANSWER_IF_FOUND and found is None:
            return
        timestamp, value = record.timestamp, None
        if found is not None:
            timestamp = max(timestamp, found.timestamp)
            value = None if instruction is Instruction.END else found.value
        answer = Answer(subscription.hash, value, subscription.partition)
        self.context.forward(Record(subscription.key, answer, timestamp, record.headers))

    def _keep(self, foreign_key: Any, subscription: Subscription) -> None:
        ends = subscription.instruction in (Instruction.END, Instruction.END_SILENTLY)
        try:
            place = self._subscriptions.place(foreign_key, subscription.key)
            self._store.put(place, None if ends else subscription)
        except SerializationError as error:
            raise unwritable(self._subscriptions.where, error) from error


@dataclass(frozen=True, slots=True)
class AnswerChanges(Operation):
    """Answers the subscriptions of a key of the right table when its value changes."""

    verb = "join"

    subscriptions: Subscriptions
    is_versioned: bool

    def stores(self) -> tuple[str, ...]:
        """Return the name of the store."""
        return (self.subscriptions.store,)

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return True: views then leave out changes from nothing to nothing."""
        return True

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor."""
        compiler.builder.add_processor(
            step.name,
            partial(Answerer, self.subscriptions, self.is_versioned),
            compiler.parents(step),
            stores=self.stores(),
        )
        compiler.produces(step, step.name)


class Answerer(Processor):
    """Sends the new value of a key to all rows that have subscribed to it."""

    def __init__(self, subscriptions: Subscriptions, is_versioned: bool) -> None:
        self._subscriptions = subscriptions
        self._is_versioned = is_versioned

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store: KeyValueStore[bytes, Subscription] = context.get_state_store(
            self._subscriptions.store
        )

    def process(self, record: Record) -> None:
        change = record.value
        if self._is_versioned and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        prefix = self._subscriptions.prefix(record.key)
        with self._store.prefix_scan(prefix, serdes.bytes) as found:
            for _, subscription in found:
                answer = Answer(subscription.hash, change.new, subscription.partition)
                self.context.forward(
                    Record(subscription.key, answer, record.timestamp, record.headers)
                )

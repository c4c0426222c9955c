"""The left side of a foreign-key join: rows subscribe to values, and answers become results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from streams.dsl.foreign_key_messages import (
    Instruction,
    hash_and_value,
    subscription,
    value_hash,
)
from streams.dsl.graph import Compiling, Operation, Step
from streams.dsl.joining import JoinFunction, JoinKind
from streams.dsl.table_joins import OUT_OF_ORDER
from streams.dsl.table_values import TableValues, unwritable
from streams.errors import SerializationError
from streams.processor import Processor, ProcessorContext
from streams.record import Record
from streams.serdes import Serde

NULL_FOREIGN_KEY = "null foreign key"


@dataclass(frozen=True, slots=True)
class Serdes:
    """The serdes of the keys and values of a table."""

    key: Serde[Any]
    value: Serde[Any]


@dataclass(frozen=True, slots=True)
class ForeignKeyJoin:
    """What the processors of a foreign-key join need to know. `name` is that of the step.

    `foreign_key(key, value)` returns the key in the right table.
    """

    name: str
    kind: JoinKind
    joiner: JoinFunction
    foreign_key: Callable[[Any, Any], Any]
    left: TableValues
    left_is_versioned: bool
    left_serdes: Serdes
    right_serdes: Serdes

    @property
    def where(self) -> str:
        """How messages call the join."""
        return f'{self.kind.value} "{self.name}"'


@dataclass(frozen=True, slots=True)
class Subscribe(Operation):
    """Sends subscriptions for the rows of the left table."""

    join: ForeignKeyJoin

    @property
    def verb(self) -> str:
        return self.join.kind.value

    def needs_old_values(self, sends_old_values: bool) -> bool:
        """Return True: a row that changes its foreign key ends its former subscription."""
        return True

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor."""
        compiler.builder.add_processor(
            step.name, partial(Subscriber, self.join), compiler.parents(step)
        )
        compiler.produces(step, step.name)


class Subscriber(Processor):
    """Sends subscriptions under the foreign keys of rows.

    If the foreign key has changed, the former subscription ends silently: only the new one answers.
    """

    def __init__(self, join: ForeignKeyJoin) -> None:
        self._join = join
        self._foreign_key = join.foreign_key
        self._write_key = join.left_serdes.key.serialize
        self._write_value = join.left_serdes.value.serialize
        self._serialize_foreign_key = join.right_serdes.key.serialize
        self._is_left = join.kind is JoinKind.LEFT
        self._skips_older = join.left_is_versioned

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._partition = int(context.task_id.rpartition("_")[2])

    def process(self, record: Record) -> None:
        change = record.value
        if self._skips_older and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        old, new = change.old, change.new
        if old is None and new is None:
            return
        before, now = self._foreign_keys(record.key, old, new)
        moved = before is not None and before != now
        row = self._row(record.key, new)
        if self._is_left:
            if moved:
                self._send(record, before, Instruction.END_SILENTLY, row)
            self._send(record, now, Instruction.ANSWER, row)
        elif now is not None:
            if moved:
                self._send(record, before, Instruction.END_SILENTLY, row)
            instruction = Instruction.ANSWER if moved else Instruction.ANSWER_IF_FOUND
            self._send(record, now, instruction, row)
        else:
            if new is not None:
                self.context.drop(NULL_FOREIGN_KEY)
            if before is not None:
                self._send(record, before, Instruction.END, row)

    def _foreign_keys(self, key: Any, old: Any, new: Any) -> tuple[bytes | None, bytes | None]:
        """Return the foreign keys of the old and the new value, as bytes."""
        before = None if old is None else self._foreign_key(key, old)
        now = None if new is None else self._foreign_key(key, new)
        written = None if now is None else self._write_foreign_key(now)
        if before is None:
            return None, written
        if before.__class__ is str and now.__class__ is str and before == now:
            return written, written
        return self._write_foreign_key(before), written

    def _write_foreign_key(self, foreign_key: Any) -> bytes:
        try:
            return self._serialize_foreign_key(foreign_key)
        except SerializationError as error:
            raise SerializationError(
                f"{error}. This is for what the foreign_key of {self._join.where} returned: it "
                "must be a key as the right table has them"
            ) from error

    def _row(self, key: Any, value: Any) -> tuple[bytes | None, bytes]:
        """Return the hash of a row's value, and the key of the row, as bytes."""
        try:
            digest = None if value is None else value_hash(self._write_value(value))
            return digest, self._write_key(key)
        except SerializationError as error:
            raise unwritable(self._join.where, error) from error

    def _send(
        self,
        record: Record,
        foreign_key: bytes | None,
        instruction: Instruction,
        row: tuple[bytes | None, bytes],
    ) -> None:
        data = subscription(instruction, *row, self._partition)
        self.context.forward(Record(foreign_key, data, record.timestamp, record.headers))


@dataclass(frozen=True, slots=True)
class ResolveAnswers(Operation):
    """Makes results of the answers, with the rows of the left table."""

    join: ForeignKeyJoin

    @property
    def verb(self) -> str:
        return self.join.kind.value

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores that the left table's values are in."""
        return self.join.left.stores

    def compile(self, step: Step, compiler: Compiling) -> None:
        """Add the processor."""
        compiler.builder.add_processor(
            step.name,
            partial(Resolver, self.join),
            compiler.parents(step),
            stores=self.stores(),
        )
        compiler.produces(step, step.name)


class Resolver(Processor):
    """Joins an answer with the row that asked.

    If the row has changed since it asked, the answer is out of date and is left out: the change has
    asked again.
    """

    def __init__(self, join: ForeignKeyJoin) -> None:
        self._join = join
        self._joiner = join.joiner
        self._read_key = join.left_serdes.key.deserialize
        self._read_value = join.right_serdes.value.deserialize
        self._is_left = join.kind is JoinKind.LEFT

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        serdes = self._join.left_serdes
        self._left = self._join.left.open(context).serialized(serdes.key, serdes.value)

    def process(self, record: Record) -> None:
        digest, value_data = hash_and_value(record.value)
        found = self._left.get(record.key)
        if digest != (None if found is None else value_hash(found[0])):
            return
        row = None if found is None else self._left.value(found[0])
        value = None if value_data is None else self._read_value(value_data)
        joined = None
        if value is not None or (self._is_left and row is not None):
            joined = self._joiner(row, value)
        key = self._read_key(record.key)
        self.context.forward(Record(key, joined, record.timestamp, record.headers))

"""The left side of a foreign-key join: rows subscribe to values, and answers become results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from streams.dsl.foreign_key_messages import Instruction, Subscription, value_hash
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
class ForeignKeyJoin:
    """What the processors of a foreign-key join need to know. `name` is that of the step.

    `foreign_key(key, value)` returns the key in the right table. The serdes are those of that key,
    and of the values of the left table.
    """

    name: str
    kind: JoinKind
    joiner: JoinFunction
    foreign_key: Callable[[Any, Any], Any]
    left: TableValues
    left_is_versioned: bool
    foreign_key_serde: Serde[Any]
    value_serde: Serde[Any]

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
        self._write_foreign_key = join.foreign_key_serde.serialize
        self._is_left = join.kind is JoinKind.LEFT

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._partition = int(context.task_id.rpartition("_")[2])

    def process(self, record: Record) -> None:
        change = record.value
        if self._join.left_is_versioned and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return
        old, new = change.old, change.new
        if old is None and new is None:
            return
        foreign_key, key = self._join.foreign_key, record.key
        before = None if old is None else foreign_key(key, old)
        now = None if new is None else foreign_key(key, new)
        moved = before is not None and not self._is_same(before, now)
        digest = self._digest(new)
        if self._is_left:
            if moved:
                self._send(record, before, Instruction.END_SILENTLY, digest)
            self._send(record, now, Instruction.ANSWER, digest)
        elif now is not None:
            if moved:
                self._send(record, before, Instruction.END_SILENTLY, digest)
            instruction = Instruction.ANSWER if moved else Instruction.ANSWER_IF_FOUND
            self._send(record, now, instruction, digest)
        else:
            if new is not None:
                self.context.drop(NULL_FOREIGN_KEY)
            if before is not None:
                self._send(record, before, Instruction.END, digest)

    def _is_same(self, before: Any, now: Any) -> bool:
        if now is None:
            return False
        try:
            return self._write_foreign_key(before) == self._write_foreign_key(now)
        except SerializationError as error:
            raise SerializationError(
                f"{error}. This is for what the foreign_key of {self._join.where} returned: it "
                "must be a key as the right table has them"
            ) from error

    def _digest(self, value: Any) -> bytes | None:
        try:
            return None if value is None else value_hash(self._join.value_serde.serialize(value))
        except SerializationError as error:
            raise unwritable(self._join.where, error) from error

    def _send(
        self, record: Record, foreign_key: Any, instruction: Instruction, digest: bytes | None
    ) -> None:
        subscription = Subscription(instruction, digest, record.key, self._partition)
        self.context.forward(Record(foreign_key, subscription, record.timestamp, record.headers))


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
        self._write_value = join.value_serde.serialize
        self._is_left = join.kind is JoinKind.LEFT

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._left = self._join.left.open(context)

    def process(self, record: Record) -> None:
        answer, found = record.value, self._left.get(record.key)
        row = None if found is None else found.value
        digest = None if row is None else value_hash(self._write_value(row))
        if digest != answer.hash:
            return
        joined = None
        if answer.value is not None or (self._is_left and row is not None):
            joined = self._joiner(row, answer.value)
        self.context.forward(Record(record.key, joined, record.timestamp, record.headers))

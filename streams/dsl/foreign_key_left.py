"""The left side of a foreign-key join: rows subscribe to values, and answers become results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_pipeline.streams.dsl.change import OUT_OF_ORDER
from kafka_pipeline.streams.dsl.foreign_key_messages import (
    Instruction,
    hash_and_value,
    subscription,
    value_hash,
)
from kafka_pipeline.streams.dsl.graph import Compiling, Operation, Step
from kafka_pipeline.streams.dsl.joining import JoinFunction, JoinKind
from kafka_pipeline.streams.dsl.stateless import repeated, results_of, selected
from kafka_pipeline.streams.dsl.table_values import TableSerdes, TableValues, unwritable
from kafka_pipeline.streams.engine.either_way import EitherWay
from kafka_pipeline.streams.errors import SerializationError, reworded
from kafka_pipeline.streams.processor import ProcessorContext
from kafka_pipeline.streams.record import Batch, Record
from kafka_pipeline.streams.stores import TimestampedKeyValueStore

NULL_FOREIGN_KEY = "null foreign key"


@dataclass(frozen=True, slots=True)
class ForeignKeyJoin:
    """The parameters of a foreign-key join's processors. `name` is that of the step.

    `foreign_key(key, value)` returns the key in the right table.
    """

    name: str
    kind: JoinKind
    joiner: JoinFunction
    foreign_key: Callable[[Any, Any], Any]
    left: TableValues
    left_is_versioned: bool
    left_serdes: TableSerdes
    right_serdes: TableSerdes

    @property
    def where(self) -> str:
        """The join's name in messages."""
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

    def stores(self) -> tuple[str, ...]:
        """Return the name of the store of the results, which an inner join looks up."""
        return () if self.join.kind is JoinKind.LEFT else (self.join.name,)

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.runs(step, partial(Subscriber, self.join))


class Subscriber(EitherWay):
    """Sends subscriptions under the foreign keys of rows.

    If the foreign key has changed, the former subscription ends silently: only the new one answers.
    In an inner join, a row without a partner needs no answer, unless it has a result: an answer
    that takes the result back may be on its way, but will be out of date when it comes.
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
        self._results: TimestampedKeyValueStore[Any, Any] | None = (
            None if self._is_left else context.get_state_store(self._join.name)
        )

    def process(self, batch: Batch) -> None:
        found = results_of(self._subscriptions, batch)
        pairs = [pair for each in found for pair in each]
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        self.context.forward(repeated(batch, list(map(len, found)), keys, values))

    def process_record(self, record: Record) -> None:
        for foreign_key, data in self._subscriptions(record.key, record.value):
            self.context.forward(Record(foreign_key, data, record.timestamp, record.headers))

    def _subscriptions(self, key: Any, change: Any) -> Sequence[tuple[bytes | None, bytes]]:
        """Return what to send for a change of a row: serialized foreign keys and subscriptions."""
        if self._skips_older and not change.is_latest:
            self.context.drop(OUT_OF_ORDER)
            return ()
        old, new = change.old, change.new
        if old is None and new is None:
            return ()
        before, now = self._foreign_keys(key, old, new)
        digest, key_data = self._row(key, new)
        if now is None and not self._is_left:
            if new is not None:
                self.context.drop(NULL_FOREIGN_KEY)
            if before is not None:
                return ((before, subscription(Instruction.END, digest, key_data, self._partition)),)
            if not self._has_result(key_data):
                return ()
            return ((None, subscription(Instruction.ANSWER, digest, key_data, self._partition)),)
        moved = before is not None and before != now
        answers = self._is_left or moved or self._has_result(key_data)
        instruction = Instruction.ANSWER if answers else Instruction.ANSWER_IF_FOUND
        latest = now, subscription(instruction, digest, key_data, self._partition)
        if not moved:
            return (latest,)
        end = subscription(Instruction.END_SILENTLY, digest, key_data, self._partition)
        return (before, end), latest

    def _has_result(self, key: bytes) -> bool:
        """Return whether the row with this key has a result of the inner join."""
        assert self._results is not None, "a left join always answers"
        return self._results.get_serialized(key) is not None

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
            raise reworded(
                error,
                f"This is for what the foreign_key of {self._join.where} returned: it must be a "
                "key as the right table has them",
            ) from error

    def _row(self, key: Any, value: Any) -> tuple[bytes | None, bytes]:
        """Return the hash of a row's value, and the key of the row, as bytes."""
        try:
            digest = None if value is None else value_hash(self._write_value(value))
            return digest, self._write_key(key)
        except SerializationError as error:
            raise unwritable(self._join.where, error) from error


@dataclass(frozen=True, slots=True)
class ResolveAnswers(Operation):
    """Makes results of the answers, with the rows of the left table."""

    join: ForeignKeyJoin
    after_row_key: int

    @property
    def verb(self) -> str:
        return self.join.kind.value

    def after_key(self, parents: Sequence[Step]) -> int:
        """Return what it is for the left table: answers come to the task of the row."""
        return self.after_row_key

    def stores(self) -> tuple[str, ...]:
        """Return the names of the stores that the left table's values are in."""
        return self.join.left.stores

    def compile(self, step: Step, compiler: Compiling) -> None:
        compiler.runs(step, partial(Resolver, self.join))


class Resolver(EitherWay):
    """Joins answers with the rows that asked.

    If a row has changed since it asked, the answer is out of date and is left out: the change has
    asked again.
    """

    def __init__(self, join: ForeignKeyJoin) -> None:
        self._left, self._left_serdes = join.left, join.left_serdes
        self._read_key = join.left_serdes.key.deserialize
        self._joiner = join.joiner
        self._read_value = join.right_serdes.value.deserialize
        self._is_left = join.kind is JoinKind.LEFT

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        serdes = self._left_serdes
        self._rows = self._left.open(context).serialized(serdes.key, serdes.value)

    def process(self, batch: Batch) -> None:
        found = results_of(self._result, batch)
        current = selected(batch, [is_current for is_current, _ in found])
        keys = list(map(self._read_key, current.keys))
        joined = [result for is_current, result in found if is_current]
        self.context.forward(current.with_columns(keys, joined))

    def process_record(self, record: Record) -> None:
        is_current, joined = self._result(record.key, record.value)
        if is_current:
            key = self._read_key(record.key)
            self.context.forward(Record(key, joined, record.timestamp, record.headers))

    def _result(self, key: bytes, answer: bytes) -> tuple[bool, Any]:
        """Return whether an answer is up to date, and what it makes the row's result."""
        digest, value_data = hash_and_value(answer)
        found = self._rows.get(key)
        if digest != (None if found is None else value_hash(found[0])):
            return False, None
        row = None if found is None else self._rows.value(found[0])
        value = None if value_data is None else self._read_value(value_data)
        if value is not None or (self._is_left and row is not None):
            return True, self._joiner(row, value)
        return True, None

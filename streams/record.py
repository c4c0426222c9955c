"""Records as processors see them: one by one, or as columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic

from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.type_variables import K2, V2, K_co, V_co

Headers = Sequence[tuple[str, bytes | None]]


class Record(Generic[K_co, V_co]):
    """One record: what a `Processor` gets and forwards. Treat it as immutable; it may be shared.

    `key` and `value` are deserialized, or `None` if the record has none. A type that allows for
    that is `Record[str, int | None]`; `Record` alone is a record of anything. `timestamp` is in
    milliseconds since the epoch, 0 or more. `headers` are pairs of a name and bytes or `None`, in
    their order; a name may occur several times.
    """

    __slots__ = ("headers", "key", "timestamp", "value")

    def __init__(self, key: K_co, value: V_co, timestamp: int, headers: Headers = ()) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.headers = headers

    def with_key(self, key: K2) -> Record[K2, V_co]:
        """Return this record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: V2) -> Record[K_co, V2]:
        """Return this record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record[K_co, V_co]:
        """Return this record with another timestamp."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record[K_co, V_co]:
        """Return this record with other headers."""
        return Record(self.key, self.value, self.timestamp, headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.key, self.value, self.timestamp, [*self.headers]) == (
            other.key,
            other.value,
            other.timestamp,
            [*other.headers],
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Record({self.key!r}, {self.value!r}, {self.timestamp}, {list(self.headers)!r})"


@dataclass(slots=True)
class Batch:
    """Consecutive records as columns of one length: what a `BatchProcessor` gets and forwards.

    Columns are lists, or any iterables with a length, such as Arrow arrays; see `Record` for their
    items. `headers` is `None` if no record has any. `offsets` are the offsets in the input topic,
    or `None` for records that were not read from a topic. Treat a batch as immutable; it may be
    shared. Columns that differ in length raise `StreamsError`.
    """

    keys: Sequence[Any]
    values: Sequence[Any]
    timestamps: Sequence[int]
    headers: Sequence[Headers | None] | None = None
    offsets: Sequence[int] | None = None
    clocks: Sequence[int] | None = field(default=None, repr=False, compare=False)
    """For the engine: the clocks of the records (`streams.event_time`); `None` if in order."""
    given: RecordBatch | None = field(default=None, init=False, repr=False, compare=False)
    """For the engine: the batch that was read, whose columns a sink need not check again."""

    def __post_init__(self) -> None:
        keys, values, size = len(self.keys), len(self.values), len(self.timestamps)
        headers = size if self.headers is None else len(self.headers)
        if not keys == values == headers == size:
            raise StreamsError(
                f"the columns of a batch differ in length: {counted(keys, 'key')}, "
                f"{counted(values, 'value')}, {counted(size, 'timestamp')}, "
                f"{counted(headers, 'header')}"
            )

    def __len__(self) -> int:
        return len(self.timestamps)

    def with_values(self, values: Sequence[Any]) -> Batch:
        """Return these records with other values, one for each."""
        other = replace(self, values=values)
        other.given = self.given
        return other

    def with_columns(self, keys: Sequence[Any], values: Sequence[Any]) -> Batch:
        """Return these records with other keys and values, one of each for each record."""
        return Batch(keys, values, self.timestamps, self.headers, self.offsets, self.clocks)

    def head(self, count: int) -> Batch:
        """Return the first `count` records, or all if there are no more."""
        return self.part(0, count)

    def part(self, start: int, stop: int) -> Batch:
        """Return the records from index `start` to `stop`, or all if these are all."""
        if stop - start >= len(self):
            return self
        return Batch(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            self.headers[start:stop] if self.headers else None,
            self.offsets[start:stop] if self.offsets else None,
            self.clocks[start:stop] if self.clocks else None,
        )

    def records(self) -> Iterator[Record]:
        """Return the records one by one."""
        columns = (items_of(self.keys), items_of(self.values), items_of(self.timestamps))
        if self.headers is None:
            yield from map(Record, *columns)
            return
        for key, value, timestamp, headers in zip(*columns, self.headers, strict=True):
            yield Record(key, value, timestamp, headers or ())

    @staticmethod
    def of(record: Record) -> Batch:
        """Return a batch of one record."""
        headers = [record.headers] if record.headers else None
        return Batch([record.key], [record.value], [record.timestamp], headers)


class LazyColumn(Sequence[Any]):
    """For the engine: a column whose items are made when they are asked for."""

    @abstractmethod
    def to_pylist(self) -> list[Any]:
        """Return the items; the same list each time."""

    @abstractmethod
    def selected(self, kept: Sequence[bool]) -> LazyColumn:
        """Return the items for which `kept` is true, in order."""

    def expect(self, fields: Collection[tuple[str, ...]]) -> None:
        """Prepare for looking at these fields of the items, each a path of names."""

    def converted(self, convert: Callable[[Any], Any]) -> list[Any]:
        """Return what `convert` makes of each item; null stays null. Raises what it raises."""
        return [None if item is None else convert(item) for item in self.to_pylist()]

    def __getitem__(self, index: Any) -> Any:
        return self.to_pylist()[index]


def items_of(column: Sequence[Any]) -> Sequence[Any]:
    """Return the items of a column, even from Arrow or NumPy, as plain Python values."""
    to_list = getattr(column, "to_pylist", None) or getattr(column, "tolist", None)
    return to_list() if to_list else column


def in_columns(records: Sequence[Record]) -> Batch:
    """Return a batch of these records."""
    has_headers = any(record.headers for record in records)
    return Batch(
        [record.key for record in records],
        [record.value for record in records],
        [record.timestamp for record in records],
        [record.headers or None for record in records] if has_headers else None,
    )

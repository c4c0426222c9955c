"""The topics of a `TopologyTestDriver`, as tests write and read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

from kafka_pipeline.common.record_batch import OutputRecord, RecordBatch
from kafka_pipeline.streams.engine.outputs import OutputColumns
from kafka_pipeline.streams.engine.sendable import check_timestamp, sendable_headers
from kafka_pipeline.streams.errors import StreamsError
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.streams.record import Headers, Record
from kafka_pipeline.streams.serdes import Serde
from kafka_pipeline.streams.type_variables import K, V

NO_TIMESTAMP = -1
TASK = 0
"""The number of the only task of each group, and of the partition that it reads."""

T = TypeVar("T")

Entry = tuple[bytes | None, bytes | None, int, Headers, int]
"""Key, value, timestamp, headers and partition of a record of a topic."""


Piped = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp and headers of a record that a test writes."""


class Driver(Protocol):
    """The part of the driver that its topics use."""

    now_ms: int

    def write(self, topic: str, records: Sequence[Piped]) -> None:
        """Write a run of records to a topic from outside, and process all that follows from it."""

    def log(self, topic: str) -> list[Entry]:
        """Return all records that were written to a topic."""

    def held_back(self, topic: str) -> str:
        """Return which records wait that may lead to records of a topic, and for what; or ""."""


def placed(record: Piped, partitions: int, partition: int = -1) -> Entry:
    """Return a record with its partition; the key decides the partition if it is -1."""
    key, value, timestamp, headers = record
    if partition < 0:
        partition = default_partition(key, partitions) if key is not None else 0
    return key, value, timestamp, headers, partition


def entries_of(output: OutputRecord | OutputColumns, partitions: int) -> list[Entry]:
    """Return the records that a task sends to a topic with that many partitions."""
    if not isinstance(output, OutputColumns):
        _, key, value, partition, timestamp, of_one = output
        return [placed((key, value, timestamp, of_one or ()), partitions, partition)]
    chosen = output.partitions or [-1] * len(output.keys)
    headers = output.headers or [None] * len(output.keys)
    columns = zip(output.keys, output.values, output.timestamps, headers, chosen, strict=True)
    return [
        placed((key, value, timestamp, of_one or ()), partitions, partition)
        for key, value, timestamp, of_one, partition in columns
    ]


def batch_of(topic: str, first_offset: int, entries: Sequence[Entry]) -> RecordBatch:
    """Return one or more records of a topic as the task that reads them gets them."""
    keys, values, timestamps, headers, _ = zip(*entries, strict=True)
    return RecordBatch(
        topic,
        TASK,
        keys,
        values,
        timestamps,
        range(first_offset, first_offset + len(entries)),
        [list(of_one) for of_one in headers] if any(headers) else None,
    )


class ReadRecord(Record[K, V]):
    """A record of an output topic, with the topic and the partition that it went to."""

    __slots__ = ("partition", "topic")

    def __init__(
        self,
        key: K,
        value: V,
        timestamp: int,
        headers: Headers = (),
        topic: str = "",
        partition: int = 0,
    ) -> None:
        super().__init__(key, value, timestamp, headers)
        self.topic = topic
        self.partition = partition

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, topic={self.topic!r}, partition={self.partition})"


class TestInputTopic(Generic[K, V]):
    """Writes to a topic that the topology reads. Made by `TopologyTestDriver`."""

    __test__ = False  # not a test, in spite of its name

    def __init__(
        self,
        driver: Driver,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
        start_timestamp: int | None,
        auto_advance_ms: int,
    ) -> None:
        self._driver = driver
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._timestamp = start_timestamp
        self._auto_advance_ms = auto_advance_ms

    def pipe_input(
        self,
        key: K | None,
        value: V | None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Write a record, and let the topology process it and all that follows from it.

        Without a `timestamp`, the record gets the topic's time: `start_timestamp`, and then
        `auto_advance_ms` more for each record. If the topic has no `start_timestamp`, the record
        gets the driver's time. -1 means a record without a timestamp, as old producers send it.
        Raises `InvalidArgumentError` for a timestamp or headers that Kafka would not accept, and
        whatever the processors raise, unless `on_error` says what to do with the record.
        """
        self._driver.write(self._name, [self._piped(key, value, timestamp, headers)])

    def pipe_records(self, records: Iterable[Record[K | None, V | None]]) -> None:
        """Write records one after the other."""
        for record in records:
            self.pipe_input(record.key, record.value, record.timestamp, record.headers)

    def pipe_batch(self, records: Iterable[Record[K | None, V | None]]) -> None:
        """Write records at once, as one poll of a consumer may return them.

        A `BatchProcessor` gets them in one call, and readers of a topic that it writes get its
        batches unchanged. Raises what `pipe_input` raises; if one record, timestamp or header is
        invalid, nothing is written.
        """
        self._driver.write(
            self._name, [self._piped(r.key, r.value, r.timestamp, r.headers) for r in records]
        )

    def _piped(
        self, key: K | None, value: V | None, timestamp: int | None, headers: Headers
    ) -> Piped:
        where = f"topic {self._name}"
        if timestamp is None:
            timestamp = self._driver.now_ms if self._timestamp is None else self._timestamp
            if self._timestamp is not None:
                self._timestamp += self._auto_advance_ms
        check_timestamp(where, timestamp, least=NO_TIMESTAMP)
        return (
            None if key is None else self._key_serde.serialize(key),
            None if value is None else self._value_serde.serialize(value),
            timestamp,
            sendable_headers(where, headers) if headers else (),
        )


class TestOutputTopic(Generic[K, V]):
    """Reads a topic that the topology writes, from its beginning. Made by `TopologyTestDriver`.

    As in Kafka Streams, types do not say that a key or a value may be `None`, as in deletions.
    """

    __test__ = False  # not a test, in spite of its name

    def __init__(
        self,
        driver: Driver,
        name: str,
        key_serde: Serde[K],
        value_serde: Serde[V],
    ) -> None:
        self._driver = driver
        self._log = driver.log(name)
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._position = 0

    @property
    def size(self) -> int:
        """How many records have not been read yet."""
        return len(self._log) - self._position

    @property
    def held_back(self) -> str:
        """Which records wait that may lead to records of this topic, and for what; or "".

        Such as "1 record waits: advance the wall clock by 500 ms (max_task_idle_ms)".
        """
        return self._driver.held_back(self._name)

    def read_record(self) -> ReadRecord[K, V]:
        """Return the next record. Raises `StreamsError` if there is none, and says what waits."""
        if not self.size:
            held_back = self.held_back
            raise StreamsError(
                f"topic {self._name} has nothing to read yet: {held_back}"
                if held_back
                else f"topic {self._name} has no more records"
            )
        return self._next()

    def read_records(self) -> list[ReadRecord[K, V]]:
        """Return all records that have not been read yet.

        If there are none because records wait, the `repr` of the list says so.
        """
        return self._or_held_back([self._next() for _ in range(self.size)])

    def read_key_values(self) -> list[tuple[K, V]]:
        """Return keys and values of all records that have not been read yet; see `read_records`."""
        return self._or_held_back([(record.key, record.value) for record in self.read_records()])

    def _next(self) -> ReadRecord[K, V]:
        key, value, timestamp, headers, partition = self._log[self._position]
        self._position += 1
        read_key: Any = None if key is None else self._key_serde.deserialize(key)
        read_value: Any = None if value is None else self._value_serde.deserialize(value)
        return ReadRecord(
            read_key,
            read_value,
            timestamp,
            headers,
            self._name,
            partition,
        )

    def _or_held_back(self, found: list[T]) -> list[T]:
        held_back = "" if found else self.held_back
        if held_back and (noted := READ_TOO_EARLY.get(None)) is not None:
            # What a comprehension makes of the list is another list, without these words.
            noted.append(f"topic {self._name} has nothing to read yet: {held_back}")
        return _HeldBack(held_back) if held_back else found


READ_TOO_EARLY: ContextVar[list[str]] = ContextVar("READ_TOO_EARLY")
"""Where reads note what was held back; the pytest plugin shows it if the test fails."""


class _HeldBack(list[T]):
    """An empty list; its `repr`, which a failed assertion shows, says what is held back."""

    def __init__(self, held_back: str) -> None:
        super().__init__()
        self._held_back = held_back

    def __repr__(self) -> str:
        return f"{super().__repr__()} ({self._held_back})"

"""The topics of a `TopologyTestDriver`, as tests write and read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from streams.engine.sendable import check_timestamp, sendable_headers
from streams.errors import StreamsError
from streams.record import Headers, Record
from streams.serdes import Serde

NO_TIMESTAMP = -1

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


class ReadRecord(Record):
    """A record of an output topic, with the topic and the partition that it went to."""

    __slots__ = ("partition", "topic")

    def __init__(
        self,
        key: Any,
        value: Any,
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


class TestInputTopic:
    """Writes to a topic that the topology reads. Made by `TopologyTestDriver`."""

    __test__ = False  # not a test, in spite of its name

    def __init__(
        self,
        driver: Driver,
        name: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        start_timestamp: int | None,
        auto_advance: int,
    ) -> None:
        self._driver = driver
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._timestamp = start_timestamp
        self._auto_advance = auto_advance

    def pipe_input(
        self, key: Any, value: Any, timestamp: int | None = None, headers: Headers = ()
    ) -> None:
        """Write a record, and let the topology process it and all that follows from it.

        Without a `timestamp`, the record gets the topic's time: `start_timestamp`, and then
        `auto_advance` more for each record. If the topic has no `start_timestamp`, the record gets
        the driver's time. -1 means a record without a timestamp, as old producers send it. Raises
        `InvalidArgumentError` for a timestamp or headers that Kafka would not accept, and whatever
        the processors raise, unless `on_error` says what to do with the record.
        """
        self._driver.write(self._name, [self._piped(key, value, timestamp, headers)])

    def pipe_records(self, records: Iterable[Record]) -> None:
        """Write records one after the other."""
        for record in records:
            self.pipe_input(record.key, record.value, record.timestamp, record.headers)

    def pipe_batch(self, records: Iterable[Record]) -> None:
        """Write records at once, as one poll of a consumer may return them.

        A `BatchProcessor` gets them in one call, and readers of a topic that it writes get its
        batches unchanged. Raises what `pipe_input` raises; if one record, timestamp or header is
        invalid, nothing is written.
        """
        self._driver.write(
            self._name, [self._piped(r.key, r.value, r.timestamp, r.headers) for r in records]
        )

    def _piped(self, key: Any, value: Any, timestamp: int | None, headers: Headers) -> Piped:
        where = f"topic {self._name}"
        if timestamp is None:
            timestamp = self._driver.now_ms if self._timestamp is None else self._timestamp
            if self._timestamp is not None:
                self._timestamp += self._auto_advance
        check_timestamp(where, timestamp, least=NO_TIMESTAMP)
        return (
            None if key is None else self._key_serde.serialize(key),
            None if value is None else self._value_serde.serialize(value),
            timestamp,
            sendable_headers(where, headers) if headers else (),
        )


class TestOutputTopic:
    """Reads a topic that the topology writes, from its beginning. Made by `TopologyTestDriver`."""

    __test__ = False  # not a test, in spite of its name

    def __init__(
        self,
        driver: Driver,
        name: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
    ) -> None:
        self._log = driver.log(name)
        self._name = name
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._position = 0

    @property
    def size(self) -> int:
        """How many records have not been read yet."""
        return len(self._log) - self._position

    def read_record(self) -> ReadRecord:
        """Return the next record. Raises `StreamsError` if there is none."""
        if not self.size:
            raise StreamsError(f"topic {self._name} has no more records")
        key, value, timestamp, headers, partition = self._log[self._position]
        self._position += 1
        return ReadRecord(
            None if key is None else self._key_serde.deserialize(key),
            None if value is None else self._value_serde.deserialize(value),
            timestamp,
            headers,
            self._name,
            partition,
        )

    def read_records(self) -> list[ReadRecord]:
        """Return all records that have not been read yet."""
        return [self.read_record() for _ in range(self.size)]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        """Return keys and values of all records that have not been read yet."""
        return [(record.key, record.value) for record in self.read_records()]

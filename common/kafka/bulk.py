"""Writes many records to a topic and reads whole topics, to load data and to check results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka.admin import WRITE, Admin
from kafka_pipeline.common.kafka.clients import (
    Partition,
    TransactionFailedError,
    client_config,
    connect,
    explain,
    translate,
)
from kafka_pipeline.common.kafka.data import Fetched, PartitionReader
from kafka_pipeline.common.kafka.read_to_end import read_to_end
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.suggest import counted
from kafka_pipeline.common.topic_names import BULK_GROUP

_LINGER_MS = 5
FETCH_RECORDS = 20_000
_FETCH_WAIT_S = 0.2

_NOW = 0
"""In place of a timestamp: librdkafka takes the current time."""

Row = tuple[bytes | None, bytes | None]
TimedRow = tuple[bytes | None, bytes | None, int]


class BulkWriter:
    """Writes keys and values to one topic, in order and each once, outside of transactions."""

    def __init__(self, config: Config, topic: str) -> None:
        self._topic = topic
        self._error: KafkaError | None = None
        self._producer = connect(
            Producer,
            client_config(
                config,
                "producer",
                enable_idempotence=True,
                acks="all",
                linger_ms=_LINGER_MS,
                # Java's default: keys go to the partitions that Java clients would choose.
                partitioner="murmur2_random",
            )
            | {"on_delivery": self._on_delivery, "delivery.report.only.error": True},
        )

    def write(self, rows: Iterable[Row]) -> None:
        """Hand records over; blocks while the send queue is full. Raises as `flush`."""
        self.write_at((key, value, _NOW) for key, value in rows)

    def write_at(self, rows: Iterable[TimedRow]) -> None:
        """Hand records over with timestamps in ms, 1 or more; blocks and raises as `write`.

        A broker that is killed forgets a producer whose timestamps are older than
        `producer.id.expiration.ms`, a day by default. If that happens meanwhile, records with such
        timestamps may be duplicated.
        """
        for key, value, timestamp in rows:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, timestamp=timestamp)
                    break
                except BufferError:
                    self._producer.poll(0.01)
                    self._raise_if_lost()
                except KafkaException as exception:
                    raise translate(exception) from exception
        self._producer.poll(0)
        self._raise_if_lost()

    def flush(self, timeout_s: float) -> None:
        """Wait until Kafka has all records.

        Raises `UnavailableError` if it does not accept them within `timeout_s`: it is then unknown
        which of them have arrived.
        """
        left = self._producer.flush(timeout_s)
        self._raise_if_lost()
        if left:
            raise UnavailableError(
                f"Kafka has not taken {counted(left, 'record')} of topic {self._topic}"
            )

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self._error = self._error or error

    def _raise_if_lost(self) -> None:
        if self._error is not None:
            raise UnavailableError(
                f"Kafka does not take the records of topic {self._topic}: "
                f"{explain(self._error, f'{WRITE} of topic {self._topic}')}"
            )


def read_committed(config: Config, topic: str, partitions: int) -> list[RecordBatch]:
    """Return all committed records of a topic, in order within each partition.

    Reads up to the high watermarks at the time of the call: the last stable offset would leave out
    records after the start of an open transaction. Raises as `read_up_to`.
    """
    admin = Admin(config)
    ends = admin.high_watermarks([(topic, number) for number in range(partitions)])
    return read_up_to(config, admin, ends)


def read_up_to(config: Config, admin: Admin, ends: Mapping[Partition, int]) -> list[RecordBatch]:
    """Return all committed records of partitions up to their ends, and perhaps some after these.

    Raises as `read_from`. Starts again if records are deleted meanwhile.
    """
    lows = admin.oldest_offsets(list(ends))
    while True:
        try:
            return list(read_from(config, lows, ends))
        except UnavailableError:
            before, lows = lows, admin.oldest_offsets(list(ends))
            if lows == before:
                raise


def read_range(
    config: Config,
    topic: str,
    partition: int,
    start: int,
    end: int,
    stall_timeout_s: float = 30,
) -> Iterator[RecordBatch]:
    """Yield the committed records of a partition from offset `start` up to but not including `end`.

    Raises as `read_from`.
    """
    place = (topic, partition)
    for batch in read_from(config, {place: start}, {place: end}, stall_timeout_s):
        count = batch.count_before(end)
        if count:
            yield batch.part(0, count)


def read_from(
    config: Config,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int] | None,
    stall_timeout_s: float = 30,
    most: int = FETCH_RECORDS,
) -> Iterator[RecordBatch]:
    """Yield committed records of partitions from their starts up to their ends, or forever.

    Fetches up to `most` records at a time (1 or more), and holds these in memory. The last batch
    may go beyond the end. Raises `UnavailableError` if nothing comes for `stall_timeout_s`, as
    happens while a transaction stays open.
    """
    with closing(PartitionReader(config, BULK_GROUP)) as reader:
        if ends is not None:
            reader.assign({p: start for p, start in starts.items() if start < ends[p]})
            yield from _read(reader, ends, stall_timeout_s, most)
            return
        reader.assign(starts)
        while True:
            yield from _batches(reader.fetch(most, _FETCH_WAIT_S))


def _read(
    reader: PartitionReader, ends: Mapping[Partition, int], stall_timeout_s: float, most: int
) -> Iterator[RecordBatch]:
    """Yield the records of the assigned partitions until all their `ends` are reached."""
    fetch = partial(reader.fetch, most, _FETCH_WAIT_S)
    try:
        for fetched, _ in read_to_end(reader, ends, fetch, stall_timeout_s):
            yield from _batches(fetched)
    except TransactionFailedError as error:
        raise UnavailableError(f"{error}: a transaction may be open") from error


def _batches(fetched: Fetched) -> list[RecordBatch]:
    for (topic, number), reason, _ in fetched.errors:
        raise UnavailableError(f"{topic}[{number}] cannot be read: {reason}")
    return fetched.batches

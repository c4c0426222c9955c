"""A task's transactional producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import (
    NonRetriableError,
    Partition,
    TransactionFailedError,
    client_config,
    lower,
    retry,
)
from kafka_pipeline.common.kafka.guarded_producer import GuardedProducer
from kafka_pipeline.common.process.fault_points import reach
from kafka_pipeline.common.process.spare_threads import SpareThreads
from kafka_pipeline.common.record_batch import (
    KafkaHeaders,
    OutputRecord,
    record_size,
    size_bound,
    sizes,
)
from kafka_pipeline.common.suggest import counted

# librdkafka reads 0 as the current time, so a record with timestamp 0 is sent with 1 instead.
_FIRST_MS = 1
_RETRY_BACKOFF_MS = 5
_SEND_QUEUE_RECORDS = 500_000
_SEND_QUEUE_KBYTES = 262_144
_BATCH_BYTES = 1_000_000
_SMALLEST_MESSAGE_MAX_BYTES = 1000
END_KEY = b"end"
"""The key of a record that only shows where a partition ends. Compacted topics demand one."""


class TaskProducer:
    """The producer of one task: one transaction after another under a stable transactional id.

    Creating a second producer with the same id and calling `fence` ends the first one's right to
    write and aborts the transaction that it left open (KIP-98). After any error, the producer is
    dropped and replaced: librdkafka lacks KIP-890, so a delayed request of a transaction whose
    outcome is in doubt could otherwise reach the next transaction.
    """

    def __init__(
        self,
        config: Config,
        transactional_id: str,
        size_limits: Mapping[str, int],
        threads: SpareThreads | None = None,
        arcs: Mapping[str, int] = {},
    ) -> None:
        """Connect. `size_limits` has the `max.message.bytes` of every topic to write to.

        `arcs` maps those topics of which only a number of partitions is read to that number.
        Producers may share the `threads` for librdkafka calls that may hang.
        """
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._state_offsets: dict[str, int] = {}
        self._states_sent = 0
        settings = client_config(
            config,
            "producer",
            transactional_id=transactional_id,
            transaction_timeout_ms=config.transaction_timeout_ms,
            enable_idempotence=True,
            acks="all",
            # Java's default: keys go to the partitions that Java clients would choose.
            partitioner="murmur2_random",
            # With the default, a transaction would wait 100 ms after the one before it.
            retry_backoff_ms=_RETRY_BACKOFF_MS,
            # librdkafka ignores this while it flushes, and a commit flushes. So nothing waits, but
            # under load, a request contains 1,000 records instead of 100 to 200.
            linger_ms=5,
            queue_buffering_max_messages=_SEND_QUEUE_RECORDS,
            queue_buffering_max_kbytes=_SEND_QUEUE_KBYTES,
        )
        # librdkafka has one limit for all topics and measures sizes differently from brokers, so it
        # gets a limit that `size_limit` never exceeds. Batches of several records must suit every
        # topic.
        lower(settings, "batch.size", min([_BATCH_BYTES, *size_limits.values()]))
        largest = max([_SMALLEST_MESSAGE_MAX_BYTES, *size_limits.values()])
        lower(settings, "message.max.bytes", largest)
        self._producer = GuardedProducer(
            settings, self._timeout_s, threads or SpareThreads("offsets")
        )
        self._most = int(settings["message.max.bytes"])
        self._batch_bytes = int(settings["batch.size"])
        self._arcs = arcs
        self._limits = {topic: min(limit, self._most) for topic, limit in size_limits.items()}

    def fence(self, timeout_s: float, require: Callable[[], None] = lambda: None) -> None:
        """Fence every older producer of this id and abort its open transaction.

        While the brokers do not answer, calls `require` once a second, which may raise to end this.
        Raises `NonRetriableError` if an arc has more partitions than are read.
        """
        self._producer.fence(timeout_s, require)
        # This also makes librdkafka look up all of these topics, which `_require_arcs` relies on.
        for topic, count in self._arcs.items():
            if self.num_partitions(topic) != count:
                raise NonRetriableError(_grown(topic, count))

    @property
    def is_suspect(self) -> bool:
        """Whether a connection or the producer broke: replace the producer before further use."""
        return self._producer.is_suspect

    def require_connected(self) -> None:
        """Raise the error that makes this producer suspect, if any, as `commit` does."""
        self._producer.require_connected()

    def begin(self) -> None:
        """Open a transaction. Raises as `commit` does."""
        self._state_offsets, self._states_sent = {}, 0
        self._producer.begin()

    def size_limit(self, topic: str) -> int:
        """Return the maximum size of a record in a topic, in bytes, with all its overhead.

        Raises KeyError for a topic that was not among the `size_limits`.
        """
        return self._limits[topic]

    def learn_size_limit(self, topic: str, limit: int) -> None:
        """Record the `max.message.bytes` of one more topic to write to.

        Raises `NonRetriableError` if batches may be larger than the topic accepts.
        """
        if limit < self._batch_bytes:
            raise NonRetriableError(
                f"topic {topic} takes batches of {limit} bytes (max.message.bytes), and a topic "
                f"that is found while records are sent must take {self._batch_bytes}"
            )
        self._limits[topic] = min(limit, self._most)

    def num_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; asks a broker. Raises as `commit`."""

        def ask(timeout_s: float) -> int:
            metadata = self._producer.client.list_topics(topic, timeout=timeout_s).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            return len(metadata.partitions)

        return retry(ask, self._timeout_s)

    def send_columns(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[KafkaHeaders] | None,
        partitions: Sequence[int] | None,
    ) -> None:
        """Send records, each small enough for the topic (`size_limit`). Raises as `commit`.

        `partitions` has the partition of each record. With -1, or `None` for all, the key decides;
        such a record must have one.
        """
        taken = 0
        if headers is None:
            no, given = repeat(None), _sendable(timestamps)
            chosen = repeat(-1) if partitions is None else partitions
            taken = self._produce_all(repeat(topic), values, keys, chosen, no, no, given)
        for index in range(taken, len(keys)):
            self.send(
                topic,
                keys[index],
                values[index],
                timestamps[index] or _FIRST_MS,
                headers[index] if headers else None,
                -1 if partitions is None else partitions[index],
            )
        # If delivery reports pile up until the commit, it takes more than twice as long.
        self._producer.poll()

    def send_records(self, records: Sequence[OutputRecord]) -> None:
        """Send one record or more, each small enough for its topic. Raises as `commit`."""
        # `zip(*records)` takes more than twice as long: it makes an iterator for each record.
        topics, keys, values, partitions, timestamps, headers = (
            list(map(itemgetter(place), records)) for place in range(6)
        )
        no = repeat(None)
        given = _sendable(timestamps)
        taken = self._produce_all(topics, values, keys, partitions, no, no, given, headers)
        for topic, key, value, partition, timestamp, each in records[taken:]:
            self.send(topic, key, value, timestamp or _FIRST_MS, each, partition)
        self._producer.poll()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: KafkaHeaders,
        partition: int = -1,
        on_delivery: Any = None,
    ) -> None:
        """Send one record that is small enough for its topic (`size_limit`).

        A timestamp of 0 means the current time. Blocks while the send queue is full. Raises as
        `commit`.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.client.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery,
                    timestamp=timestamp,
                    headers=headers,  # type: ignore[arg-type]
                )
                return
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise TransactionFailedError("the send queue stays full") from error
                self._producer.poll(0.01)
            except KafkaException as exception:
                raise self._producer.cause(exception) from exception

    def send_state(self, topic: str, partition: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Send state changes to a partition of a state topic; `commit` returns their end offsets.

        Raises `NonRetriableError` for a change that is too large: the outputs that depend on it
        have already been sent.
        """
        limit = self._limits[topic]
        keys, values = list(changes), list(changes.values())
        if size_bound(keys, sizes(values), None) > limit:
            for key, value in changes.items():
                if record_size(key, value, None) > limit:
                    raise NonRetriableError(
                        f"the state of a key of {counted(len(key), 'byte')} is larger than the "
                        f"{counted(limit, 'byte')} that topic {topic} takes (max.message.bytes)"
                    )
        self._states_sent += 1
        last = len(keys) - 1
        taken = self._produce_all(repeat(topic), values[:last], keys[:last], repeat(partition))
        for index in range(taken, len(keys)):
            # The callback must not refer to this producer, which would then live until the
            # delivery.
            callback = partial(_note_offset, self._state_offsets) if index == last else None
            self.send(topic, keys[index], values[index], 0, None, partition, callback)

    def _produce_all(self, *columns: Iterable[Any]) -> int:
        """Call `produce` for each row of columns until the queue is full; return how many fit."""
        taken = 0
        try:
            for _ in map(self._producer.client.produce, *columns):
                taken += 1
        except BufferError:
            pass
        except KafkaException as exception:
            raise self._producer.cause(exception) from exception
        return taken

    def deliver_state(self) -> dict[str, int]:
        """Wait until all replicas in sync have the records of the open transaction.

        Returns the offsets after the last records of `send_state`, by topic. Blocks and raises as
        `commit`.
        """
        self._producer.flush(self._timeout_s)
        if len(self._state_offsets) < self._states_sent:
            raise self._producer.cause(KafkaException(KafkaError(KafkaError._STATE)))
        return self._state_offsets

    def find_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return where partitions end, by a record in each, whose transaction stays open.

        All replicas in sync have these records then. `close` aborts the transaction. Blocks and
        raises as `commit`.
        """
        self.begin()
        ends: dict[Partition, int] = {}
        for place in partitions:
            topic, number = place
            self.send(topic, END_KEY, None, 0, None, number, partial(note_end, ends, place))
        self._producer.flush(self._timeout_s)
        if len(ends) < len(partitions):
            raise self._producer.cause(KafkaException(KafkaError(KafkaError._STATE)))
        return ends

    def commit(
        self, positions: Mapping[Partition, Committed], group_metadata: Any
    ) -> dict[str, int]:
        """Commit the transaction together with the positions in the input (next offsets to read).

        Returns the offsets after the last records of `send_state`, by topic. Usually blocks for a
        few ms, at most for the transaction timeout. Raises `FencedError`, `NonRetriableError` or
        `TransactionFailedError`. If the outcome is in doubt, the committed offsets show it after
        the next `fence`.
        """
        self.require_connected()
        self._require_arcs()
        places = [
            TopicPartition(*p, at.offset, at.metadata, at.leader_epoch)
            for p, at in positions.items()
        ]
        reach("before-offsets")
        started = time.monotonic()
        self._producer.send_offsets(places, group_metadata)
        reach("before-commit")
        left = self._timeout_s - (time.monotonic() - started)
        reach("during-commit")
        self._producer.commit(max(left, 1))
        return self._state_offsets

    def _require_arcs(self) -> None:
        """Raise `NonRetriableError` if records may have gone to partitions that nobody reads.

        librdkafka spreads keys over the partitions that it knows, whose number only grows. It
        refuses a record for an unknown partition at once, without asking a broker. So if it accepts
        one for the first partition that nobody reads, the transaction must not be committed. This
        costs 1 µs for each arc.
        """
        deadline_s = time.monotonic() + self._timeout_s
        for topic, count in self._arcs.items():
            while True:
                try:
                    self._producer.client.produce(topic, partition=count)
                except BufferError as error:
                    if time.monotonic() > deadline_s:
                        raise TransactionFailedError("the send queue stays full") from error
                    self._producer.poll(0.01)
                except KafkaException:
                    break
                else:
                    raise NonRetriableError(_grown(topic, count))

    def close(self) -> None:
        """Drop the producer and its open transaction; see `GuardedProducer.close`."""
        self._producer.close()


def _grown(topic: str, count: int) -> str:
    return (
        f"topic {topic} has other partitions than the {count} that the job made and reads: records "
        "in the others would be lost from sight; what to do: docs/how-to/troubleshoot.md, "
        '"A topic has the wrong number of partitions"'
    )


def _note_offset(offsets: dict[str, int], error: KafkaError | None, message: Message) -> None:
    if error is None:
        offsets[message.topic() or ""] = (message.offset() or 0) + 1


def note_end(
    ends: dict[Partition, int], place: Partition, error: KafkaError | None, message: Message
) -> None:
    """Record the offset of a record that shows where a partition ends, once it is delivered."""
    if error is None:
        ends[place] = message.offset() or 0


def _sendable(timestamps: Sequence[int]) -> Sequence[int]:
    return timestamps if all(timestamps) else [each or _FIRST_MS for each in timestamps]

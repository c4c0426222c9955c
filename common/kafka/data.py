"""The data plane: a thread's consumer and a task's transactional producer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from common.config import Config
from common.kafka.clients import (
    Partition,
    TransactionFailedError,
    client_config,
    connect,
    retry,
    translate,
)
from common.record_batch import Headers, RecordBatch

# librdkafka's defaults wait up to 1 s where these wait milliseconds.
_LOW_LATENCY = {"fetch_wait_max_ms": 10, "fetch_queue_backoff_ms": 5, "fetch_error_backoff_ms": 50}
_RETRY_BACKOFF_MS = 5
_STIR_INTERVAL_S = 1.0
_SEND_QUEUE_RECORDS = 500_000
_SEND_QUEUE_KBYTES = 262_144


@dataclass(slots=True)
class Fetched:
    """What one fetch brought: records, ends reached, and what is wrong with which partition."""

    batches: list[RecordBatch] = field(default_factory=list)
    ends: list[tuple[Partition, int]] = field(default_factory=list)
    errors: list[tuple[Partition, str]] = field(default_factory=list)


class PartitionReader:
    """Reads committed records of partitions at explicit offsets; never resets or skips.

    One for all tasks of a PipelineThread, one for each restore. Offsets are committed by the
    producers' transactions, under `group`, which nobody ever subscribes to.
    """

    def __init__(self, config: Config, group: str) -> None:
        self._consumer = connect(
            Consumer,
            client_config(
                config,
                "consumer",
                group_id=group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="error",
                enable_partition_eof=True,
                **_LOW_LATENCY,
            ),
        )
        self._assigned: set[Partition] = set()

    @property
    def group_metadata(self) -> Any:
        """What a transaction needs to commit offsets for this reader's group."""
        return self._consumer.consumer_group_metadata()

    @property
    def is_idle(self) -> bool:
        """Whether no partition is assigned."""
        return not self._assigned

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Start to read each partition at its offset."""
        self._consumer.incremental_assign([TopicPartition(*p, o) for p, o in positions.items()])
        self._assigned.update(positions)

    def unassign(self, partitions: Iterable[Partition]) -> None:
        """Stop to read these partitions; those that are not assigned are ignored."""
        leaving = self._assigned.intersection(partitions)
        if leaving:
            self._consumer.incremental_unassign([TopicPartition(*p) for p in leaving])
            self._assigned -= leaving

    def committed(self, partitions: Sequence[Partition], timeout_s: float) -> dict[Partition, int]:
        """Return the group's committed offsets; partitions never committed are left out.

        Waits for transactions that are about to decide (KIP-447, `require_stable`). Safe to call
        from another thread than `fetch`.
        """
        wanted = [TopicPartition(*p) for p in partitions]
        found = retry(lambda left: self._consumer.committed(wanted, timeout=left), timeout_s)
        for entry in found:
            if entry.error is not None:
                raise translate(KafkaException(entry.error))
        return {(e.topic, e.partition): e.offset for e in found if e.offset >= 0}

    def low_watermark(self, partition: Partition, timeout_s: float) -> int:
        """Return the offset of the oldest record that the partition still has."""
        tp = TopicPartition(*partition)
        low, _ = retry(
            lambda left: self._consumer.get_watermark_offsets(tp, timeout=left), timeout_s
        )
        return int(low)

    def known_end(self, partition: Partition) -> int:
        """Return the high watermark that the last fetch saw, -1001 before the first; no I/O."""
        offsets = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        return int(offsets[1]) if offsets else -1001

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        """Return what has arrived, at most `max_records`, after waiting up to `wait_s` for it."""
        fetched = Fetched()
        first = self._consumer.poll(wait_s)
        if first is None:
            return fetched
        messages = [first]
        if max_records > 1:
            # A batch call with a timeout would wait for the batch to fill.
            messages += self._consumer.consume(max_records - 1, 0)
        if any(message.error() is not None for message in messages):
            messages = _set_aside_errors(messages, fetched)
        if messages:
            single = len(self._assigned) == 1
            runs = [messages] if single else (list(run) for _, run in groupby(messages, _partition))
            fetched.batches.extend(_columns(run) for run in runs)
        return fetched

    def close(self) -> None:
        """Leave the brokers; blocks for some milliseconds."""
        self._consumer.close()


def _partition(message: Message) -> Partition:
    return message.topic(), message.partition()  # type: ignore[return-value]


def _set_aside_errors(messages: list[Message], fetched: Fetched) -> list[Message]:
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            fetched.ends.append((_partition(message), message.offset() or 0))
        elif message.topic() is not None and not error.retriable():
            fetched.errors.append((_partition(message), error.str()))
    return records


def _columns(messages: list[Message]) -> RecordBatch:
    # The type stubs also allow a mapping, which only producing takes.
    headers: list[Any] = [message.headers() for message in messages]
    return RecordBatch(
        topic=messages[0].topic() or "",
        partition=messages[0].partition() or 0,
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        timestamps=[message.timestamp()[1] for message in messages],
        offsets=[message.offset() for message in messages],  # type: ignore[misc]
        headers=headers if any(headers) else None,
    )


class TaskProducer:
    """The producer of one task: one transaction after another under a stable transactional id.

    Creating a second one with the same id and calling `fence` ends the first one's right to
    write and aborts what it left open (KIP-98). After any error the producer is dropped and
    replaced: librdkafka lacks KIP-890, so a delayed request of a doubtful transaction could
    otherwise reach the next one.
    """

    def __init__(self, config: Config, transactional_id: str) -> None:
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._disturbed = False
        self._state_offset: int | None = None
        self._producer = connect(
            Producer,
            client_config(
                config,
                "producer",
                transactional_id=transactional_id,
                transaction_timeout_ms=config.transaction_timeout_ms,
                enable_idempotence=True,
                acks="all",
                # Java's default: keys land in the partition where Java clients put them.
                partitioner="murmur2_random",
                # The default of 100 ms is what every transaction after another would wait.
                retry_backoff_ms=_RETRY_BACKOFF_MS,
                # A transaction sends nothing late; the default of 5 is what each would wait.
                linger_ms=0,
                queue_buffering_max_messages=_SEND_QUEUE_RECORDS,
                queue_buffering_max_kbytes=_SEND_QUEUE_KBYTES,
            )
            | {"error_cb": self._on_error},
        )

    def fence(self, timeout_s: float) -> None:
        """Fence every older producer of this id and abort its open transaction."""
        # Without a connection, init_transactions waits on a timer of 500 ms.
        retry(lambda left: self._producer.list_topics(timeout=left), timeout_s)
        retry(self._producer.init_transactions, timeout_s)

    @property
    def is_doubtful(self) -> bool:
        """Whether a connection broke during the last commit: replace the producer before more."""
        return self._disturbed

    def begin(self) -> None:
        """Open a transaction."""
        self._disturbed = False
        self._state_offset = None
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise translate(exception) from exception

    def send_columns(
        self, topic: str, batch: RecordBatch, start: int, values: Sequence[bytes | None]
    ) -> int:
        """Send `values` with the keys, timestamps and headers of the batch from `start` on.

        The key decides the partition; a record without one keeps its partition number. Returns
        how many were taken: less than all if the next one is larger than the client allows
        (`message.max.bytes`).
        """
        stop = start + len(values)
        keys = batch.keys[start:stop]
        timestamps = batch.timestamps[start:stop]
        if batch.headers is None and None not in keys:
            rows: Iterator[Any] = zip(values, keys, timestamps, strict=True)
            produce, taken = self._producer.produce, 0
            try:
                for value, key, timestamp in rows:
                    produce(topic, value, key, -1, None, None, timestamp)
                    taken += 1
                return taken
            except BufferError:
                pass
            except KafkaException as exception:
                _unless_too_large(exception)
                return taken
        else:
            taken = 0
        for index in range(start + taken, stop):
            headers = batch.headers[index] if batch.headers else None
            partition = batch.partition if batch.keys[index] is None else -1
            if not self.send(
                topic,
                batch.keys[index],
                values[index - start],
                batch.timestamps[index],
                headers,
                partition,
            ):
                return index - start
        return len(values)

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int = -1,
        on_delivery: Any = None,
    ) -> bool:
        """Send one record; blocks while the send queue is full. False if it is too large."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery,
                    timestamp=timestamp,
                    headers=headers,  # type: ignore[arg-type]
                )
                return True
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise TransactionFailedError("the send queue stays full") from error
                self._producer.poll(0.01)
            except KafkaException as exception:
                _unless_too_large(exception)
                return False

    def send_state(self, topic: str, partition: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Send state changes to a partition of a state topic; `commit` tells where they ended."""
        last = len(changes) - 1
        for index, (key, value) in enumerate(changes.items()):
            callback = self._on_state_delivery if index == last else None
            if not self.send(topic, key, value, 0, None, partition, callback):
                raise TransactionFailedError(f"a record is too large for {topic}")

    def commit(self, offsets: Mapping[Partition, int], group_metadata: Any) -> int | None:
        """Commit the transaction together with the input offsets (next ones to read).

        Returns the offset behind the last record of `send_state`, `None` if there was none.
        Blocks for a few ms as a rule, up to the transaction timeout. Raises `FencedError`,
        `HopelessError` or `TransactionFailedError`; in doubt about the outcome, the committed
        offsets tell it to whoever reads them after `fence`.
        """
        self._disturbed = False
        positions = [TopicPartition(*p, offset) for p, offset in offsets.items()]
        started = time.monotonic()
        self._send_offsets(positions, group_metadata)
        left = self._timeout_s - (time.monotonic() - started)
        retry(self._producer.commit_transaction, max(left, 1))
        self._producer.poll(0)
        return self._state_offset

    def _send_offsets(self, positions: list[TopicPartition], group_metadata: Any) -> None:
        """Add the offsets to the transaction, in a thread that can be left behind.

        After a broker was away, librdkafka may wait for ever for a change of some connection,
        whatever the timeout (its issues 5456 and 5511). Asking for metadata makes such a change.
        """
        sent: Future[None] = Future()

        def send() -> None:
            try:
                retry(
                    lambda left: self._producer.send_offsets_to_transaction(
                        positions, group_metadata, left
                    ),
                    self._timeout_s,
                )
                sent.set_result(None)
            except Exception as error:
                sent.set_exception(error)

        threading.Thread(target=send, name="offsets", daemon=True).start()
        deadline_s = time.monotonic() + self._timeout_s
        while not wait([sent], timeout=_STIR_INTERVAL_S).done:
            if time.monotonic() > deadline_s:
                raise TransactionFailedError("librdkafka hangs while it sends offsets")
            self._disturbed = True
            with suppress(KafkaException):
                self._producer.list_topics(timeout=_STIR_INTERVAL_S)
        sent.result()

    def close(self) -> None:
        """Drop the producer. An open transaction is aborted by the next `fence` of its id."""
        with suppress(KafkaException):  # what a fenced producer answers to everything
            self._producer.purge()

    def _on_error(self, _error: KafkaError) -> None:
        self._disturbed = True

    def _on_state_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._state_offset = (message.offset() or 0) + 1


def _unless_too_large(exception: KafkaException) -> None:
    if exception.args[0].code() != KafkaError.MSG_SIZE_TOO_LARGE:
        raise translate(exception) from exception

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
from common.fault_points import reach
from common.kafka.clients import (
    HopelessError,
    Partition,
    TransactionFailedError,
    client_config,
    connect,
    explain,
    is_passing,
    lower,
    retry,
    translate,
)
from common.kafka.record_size import record_size, size_bound
from common.kafka.topic_watch import Describer, TopicWatch
from common.record_batch import Headers, RecordBatch

# librdkafka's defaults wait up to 1 s where these wait milliseconds.
_LOW_LATENCY = {"fetch_wait_max_ms": 10, "fetch_queue_backoff_ms": 5, "fetch_error_backoff_ms": 50}
_RETRY_BACKOFF_MS = 5
_STIR_INTERVAL_S = 1.0
_STIRS = 3
_SEND_QUEUE_RECORDS = 500_000
_SEND_QUEUE_KBYTES = 262_144
# As large as responses can be: the default, 100 MB, would stop at a record of that size for ever.
_MAX_RESPONSE_BYTES = 2_147_483_647
_BATCH_BYTES = 1_000_000
_SMALLEST_MESSAGE_MAX_BYTES = 1000


BROKEN_HEADERS = "the name of a header is not UTF-8"


@dataclass(slots=True)
class Fetched:
    """What one fetch brought: records, ends reached, and what is wrong with which partition."""

    batches: list[RecordBatch] = field(default_factory=list)
    ends: list[tuple[Partition, int]] = field(default_factory=list)
    errors: list[tuple[Partition, str]] = field(default_factory=list)


@dataclass(slots=True)
class Changes:
    """What one fetch brought of a changelog: the last value of each key, `None` for a deletion.

    `records` counts what was read, `position` is the next offset to read; `None` if nothing came.
    """

    last: dict[bytes, bytes | None]
    records: int
    position: int | None
    errors: list[tuple[Partition, str]]


class PartitionReader:
    """Reads committed records of partitions at explicit offsets; never resets or skips.

    One for all tasks of a PipelineThread, one for each restore. Offsets are committed by the
    producers' transactions, under `group`, which nobody ever subscribes to.
    """

    def __init__(self, config: Config, group: str, describer: Describer | None = None) -> None:
        """Connect. With a `describer`, `fetch` also reports topics that are deleted meanwhile."""
        self._watch = TopicWatch(describer) if describer else None
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
                receive_message_max_bytes=_MAX_RESPONSE_BYTES,
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
            if self._watch is not None:
                for topic in {t for t, _ in leaving} - {t for t, _ in self._assigned}:
                    self._watch.forget(topic)

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
        fetched = Fetched(errors=self._gone())
        messages = self._receive(max_records, wait_s, fetched)
        if messages:
            single = len(self._assigned) == 1
            runs = [messages] if single else (list(run) for _, run in groupby(messages, _partition))
            for run in runs:
                fetched.batches += _columns(run)
        return fetched

    def fetch_changes(self, max_records: int, wait_s: float) -> Changes:
        """Return what has arrived as `fetch` does, of the one partition that is assigned.

        Cheaper, for whoever needs no more than the last value of each key.
        """
        fetched = Fetched()
        messages = self._receive(max_records, wait_s, fetched)
        last: dict[Any, Any] = {message.key(): message.value() for message in messages}
        last.pop(None, None)
        positions = [offset for _, offset in fetched.ends]
        if messages:
            positions.append((messages[-1].offset() or 0) + 1)
        return Changes(last, len(messages), max(positions, default=None), fetched.errors)

    def _receive(self, max_records: int, wait_s: float, fetched: Fetched) -> list[Message]:
        """Return the records that have arrived; put ends and errors into `fetched`."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return []
        messages = [first]
        if max_records > 1:
            # A batch call with a timeout would wait for the batch to fill.
            messages += self._consumer.consume(max_records - 1, 0)
        if any(map(Message.error, messages)):
            messages = _set_aside_errors(messages, fetched)
        return messages

    def _gone(self) -> list[tuple[Partition, str]]:
        if self._watch is None:
            return []
        gone = self._watch.gone({topic for topic, _ in self._assigned})
        return [(p, gone[p[0]]) for p in self._assigned if p[0] in gone]

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
        elif message.topic() is not None and not is_passing(error):
            fetched.errors.append((_partition(message), explain(error)))
    return records


def _columns(messages: list[Message]) -> list[RecordBatch]:
    """Make batches of the records of one partition: one, unless the headers of some are broken.

    Such a record is a batch of its own, without its headers. The first call of `headers` for it
    raises; a second one would return tuples with null pointers in them.
    """
    batches: list[RecordBatch] = []
    unread = iter(messages)
    start = 0
    while start < len(messages):
        headers: list[Any] = []
        try:
            headers.extend(map(Message.headers, unread))
        except SystemError:
            bad = start + len(headers)
            if headers:
                batches.append(_batch(messages[start:bad], headers))
            batches.append(_batch(messages[bad : bad + 1], [None], error=BROKEN_HEADERS))
            start = bad + 1
        else:
            batches.append(_batch(messages[start:] if start else messages, headers))
            break
    return batches


def _batch(messages: list[Message], headers: list[Any], error: str = "") -> RecordBatch:
    return RecordBatch(
        topic=messages[0].topic() or "",
        partition=messages[0].partition() or 0,
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        timestamps=[message.timestamp()[1] for message in messages],
        offsets=[message.offset() for message in messages],  # type: ignore[misc]
        headers=headers if any(headers) else None,
        error=error,
    )


class TaskProducer:
    """The producer of one task: one transaction after another under a stable transactional id.

    Creating a second one with the same id and calling `fence` ends the first one's right to
    write and aborts what it left open (KIP-98). After any error the producer is dropped and
    replaced: librdkafka lacks KIP-890, so a delayed request of a doubtful transaction could
    otherwise reach the next one.
    """

    def __init__(
        self, config: Config, transactional_id: str, size_limits: Mapping[str, int]
    ) -> None:
        """Connect. `size_limits` has the `max.message.bytes` of every topic to write to."""
        self._timeout_s = config.transaction_timeout_ms / 1000
        self._disturbed = False
        self._state_offset: int | None = None
        settings = client_config(
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
        # librdkafka has one limit for all topics and does not measure as brokers do, so it gets
        # one that `fits` never reaches. Batches of several records must suit every topic.
        lower(settings, "batch.size", min(_BATCH_BYTES, *size_limits.values()))
        largest = max(_SMALLEST_MESSAGE_MAX_BYTES, *size_limits.values())
        lower(settings, "message.max.bytes", largest)
        self._producer = connect(Producer, settings | {"error_cb": self._on_error})
        most = int(settings["message.max.bytes"])
        self._limits = {topic: min(limit, most) for topic, limit in size_limits.items()}

    def fence(self, timeout_s: float) -> None:
        """Fence every older producer of this id and abort its open transaction."""
        # Without a connection, init_transactions waits on a timer of 500 ms.
        retry(lambda left: self._producer.list_topics(timeout=left), timeout_s)
        retry(self._producer.init_transactions, timeout_s)
        self._producer.poll(0)
        self._disturbed = False

    @property
    def is_doubtful(self) -> bool:
        """Whether a connection broke during the last commit: replace the producer before more."""
        return self._disturbed

    def begin(self) -> None:
        """Open a transaction. Raises as `commit` does."""
        self._require_undisturbed()
        self._state_offset = None
        try:
            self._producer.begin_transaction()
        except KafkaException as exception:
            raise translate(exception) from exception

    def size_limit(self, topic: str) -> int:
        """Return how many bytes a record may have in a topic, all that comes with it included."""
        return self._limits[topic]

    def fits(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether a record is small enough for a topic."""
        return record_size(key, value, headers) <= self._limits[topic]

    def count_fitting(
        self, limit: int, batch: RecordBatch, start: int, values: Sequence[bytes | None]
    ) -> int:
        """Return how many of `values`, up to the first larger one, make records up to `limit`.

        The rest of the records is that of the batch from `start` on, as `send_columns` sends them.
        """
        stop = start + len(values)
        keys = batch.keys[start:stop]
        headers = batch.headers[start:stop] if batch.headers else None
        if size_bound(keys, values, headers) <= limit:
            return len(values)
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            if record_size(key, value, headers[index] if headers else None) > limit:
                return index
        return len(values)

    def send_columns(
        self, topic: str, batch: RecordBatch, start: int, values: Sequence[bytes | None]
    ) -> None:
        """Send `values` with the keys, timestamps and headers of the batch from `start` on.

        The key decides the partition; a record without one keeps its partition number. Every
        record must be small enough (`count_fitting`). Raises as `commit`.
        """
        stop = start + len(values)
        keys = batch.keys[start:stop]
        timestamps = batch.timestamps[start:stop]
        taken = 0
        if batch.headers is None and None not in keys:
            rows: Iterator[Any] = zip(values, keys, timestamps, strict=True)
            produce = self._producer.produce
            try:
                for value, key, timestamp in rows:
                    produce(topic, value, key, -1, None, None, timestamp)
                    taken += 1
            except BufferError:
                pass
            except KafkaException as exception:
                raise self._cause(exception) from exception
        for index in range(start + taken, stop):
            self.send(
                topic,
                batch.keys[index],
                values[index - start],
                batch.timestamps[index],
                batch.headers[index] if batch.headers else None,
                batch.partition if batch.keys[index] is None else -1,
            )

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        partition: int = -1,
        on_delivery: Any = None,
    ) -> None:
        """Send one record that `fits`; blocks while the send queue is full. Raises as `commit`."""
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
                return
            except BufferError as error:
                if time.monotonic() > deadline:
                    raise TransactionFailedError("the send queue stays full") from error
                self._producer.poll(0.01)
            except KafkaException as exception:
                raise self._cause(exception) from exception

    def send_state(self, topic: str, partition: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Send state changes to a partition of a state topic; `commit` tells where they ended.

        Raises `HopelessError` for one that is too large: the outputs that count on it are sent.
        """
        last = len(changes) - 1
        for index, (key, value) in enumerate(changes.items()):
            if not self.fits(topic, key, value, None):
                raise HopelessError(
                    f"the state of a key of {len(key)} bytes is larger than the "
                    f"{self._limits[topic]} bytes that topic {topic} takes (max.message.bytes)"
                )
            callback = self._on_state_delivery if index == last else None
            self.send(topic, key, value, 0, None, partition, callback)

    def commit(self, offsets: Mapping[Partition, int], group_metadata: Any) -> int | None:
        """Commit the transaction together with the input offsets (next ones to read).

        Returns the offset behind the last record of `send_state`, `None` if there was none.
        Blocks for a few ms as a rule, up to the transaction timeout. Raises `FencedError`,
        `HopelessError` or `TransactionFailedError`; in doubt about the outcome, the committed
        offsets tell it to whoever reads them after `fence`.
        """
        self._require_undisturbed()
        positions = [TopicPartition(*p, offset) for p, offset in offsets.items()]
        reach("before-offsets")
        started = time.monotonic()
        self._send_offsets(positions, group_metadata)
        reach("before-commit")
        left = self._timeout_s - (time.monotonic() - started)
        reach("during-commit")
        retry(self._producer.commit_transaction, max(left, 1))
        self._producer.poll(0)
        return self._state_offset

    def _send_offsets(self, positions: list[TopicPartition], group_metadata: Any) -> None:
        """Add the offsets to the transaction, in a thread that can be left behind.

        After a broker was away, librdkafka may wait for ever for a change of some connection,
        whatever the timeout (its issues 5456 and 5511). Asking for metadata makes such a change.
        Where not even three answers help, only a new producer does.
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
        answers = 0
        while not wait([sent], timeout=_STIR_INTERVAL_S).done:
            if answers >= _STIRS or time.monotonic() > deadline_s:
                raise TransactionFailedError("librdkafka hangs while it sends offsets")
            self._disturbed = True
            with suppress(KafkaException):
                self._producer.list_topics(timeout=_STIR_INTERVAL_S)
                answers += 1
        sent.result()

    def close(self) -> None:
        """Drop the producer. An open transaction is aborted by the next `fence` of its id."""
        with suppress(KafkaException):  # what a fenced producer answers to everything
            self._producer.purge()

    def _cause(self, exception: KafkaException) -> Exception:
        """Translate what `produce` raised. After a refused record that says nothing of its own."""
        if exception.args[0].code() == KafkaError._STATE:
            try:
                # Changes nothing in a transaction that has failed, but tells why it did.
                self._producer.begin_transaction()
            except KafkaException as cause:
                return translate(cause)
        return translate(exception)

    def _require_undisturbed(self) -> None:
        """Raise if a connection broke: sending offsets would hang (librdkafka 5456, 5511)."""
        self._producer.poll(0)
        if self._disturbed:
            raise TransactionFailedError("the connection to a broker broke")

    def _on_error(self, error: KafkaError) -> None:
        # Nothing was under way on a connection that never came about; while one of several
        # brokers is away, this is heard all the time. But transactions need their coordinator.
        text = error.str()
        if "Connect to" not in text or "TxnCoordinator" in text:
            self._disturbed = True

    def _on_state_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._state_offset = (message.offset() or 0) + 1

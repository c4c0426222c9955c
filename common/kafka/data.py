"""The consumer of the data plane: committed records of partitions, from given offsets on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import ge
from typing import Any, Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from common.config import Config
from common.kafka.clients import (
    Partition,
    client_config,
    explain,
    is_passing,
    retry,
    translate,
)
from common.kafka.committed import Committed
from common.kafka.lifeline import connect_with_lifeline
from common.kafka.stall_watch import EndsAsker, StallWatch
from common.kafka.topic_watch import Describer, TopicWatch
from common.record_batch import Headers, RecordBatch

# librdkafka's defaults wait up to 1 s where these wait milliseconds.
_LOW_LATENCY = {"fetch_wait_max_ms": 10, "fetch_queue_backoff_ms": 5, "fetch_error_backoff_ms": 50}
_LEADER_WAIT_S = 0.01
# As large as responses can be: the default, 100 MB, would stop at a record of that size for ever.
_MAX_RESPONSE_BYTES = 2_147_483_647
_CHUNK_RECORDS = 500

BROKEN_HEADERS = "the name of a header is not UTF-8"

logger = structlog.get_logger()


class Brokers(Describer, EndsAsker, Protocol):
    """Answers what a reader asks besides its consumer; `Admin` does."""


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

    One for all tasks of a PipelineThread, one for each start of a task. Offsets are committed by
    the producers' transactions, under a group to which nobody ever subscribes.

    For one thread at a time. confluent-kafka lets one call into a consumer; others try again each
    millisecond, in no order: with a few threads that wait for a broker, one starves for a minute.
    """

    def __init__(self, config: Config, group: str, brokers: Brokers | None = None) -> None:
        """Connect. With `brokers`, `fetch` also reports topics that are deleted meanwhile.

        And it replaces a consumer that stands still; one that lost all brokers it always replaces.
        """
        self._watch = TopicWatch(brokers) if brokers else None
        self._stall_watch = StallWatch(brokers) if brokers else None
        self._settings = client_config(
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
        )
        self._consumer, self._lifeline = connect_with_lifeline(Consumer, self._settings)
        self._assigned: dict[Partition, int] = {}
        """The offsets at which reading began."""
        self._next: dict[Partition, int] = {}
        """The offsets to read next."""
        self._paused: set[Partition] = set()
        self._topics: set[str] = set()
        """The topics whose leaders the consumer has looked for."""

    @property
    def group_metadata(self) -> Any:
        """What a transaction needs to commit offsets for this reader's group."""
        return self._consumer.consumer_group_metadata()

    @property
    def paused(self) -> frozenset[Partition]:
        """The partitions that are assigned, and of which nothing more is fetched."""
        return frozenset(self._paused)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Start to read each partition at its offset."""
        self._consumer.incremental_assign([TopicPartition(*p, o) for p, o in positions.items()])
        self._assigned |= positions
        self._next |= positions
        if self._stall_watch is not None:
            self._stall_watch.begin(time.monotonic())
        for topic in {topic for topic, _ in positions} - self._topics:
            self._topics.add(topic)
            # librdkafka looks for the leaders of new topics once a second; this makes it look at
            # once, and goes on when the call has ended.
            with suppress(KafkaException):
                self._consumer.list_topics(topic, timeout=_LEADER_WAIT_S)

    def unassign(self, partitions: Iterable[Partition]) -> None:
        """Stop to read these partitions; those that are not assigned are ignored."""
        leaving = self._assigned.keys() & set(partitions)
        if leaving:
            self._consumer.incremental_unassign([TopicPartition(*p) for p in leaving])
            for partition in leaving:
                del self._assigned[partition], self._next[partition]
            self._paused -= leaving
            if self._watch is not None:
                for topic in {t for t, _ in leaving} - {t for t, _ in self._assigned}:
                    self._watch.forget(topic)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Fetch nothing more of these partitions, which are assigned, until they are resumed."""
        chosen = list(partitions)
        self._paused.update(chosen)
        self._consumer.pause([TopicPartition(*partition) for partition in chosen])

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Go on with partitions that were paused, where they were."""
        chosen = list(partitions)
        self._paused.difference_update(chosen)
        self._consumer.resume([TopicPartition(*partition) for partition in chosen])

    def committed(
        self, partitions: Sequence[Partition], timeout_s: float
    ) -> dict[Partition, Committed]:
        """Return what the group has committed; partitions never committed are left out.

        Waits for transactions that are about to decide (KIP-447, `require_stable`).
        """
        wanted = [TopicPartition(*p) for p in partitions]
        found = retry(lambda left: self._consumer.committed(wanted, timeout=left), timeout_s)
        for entry in found:
            if entry.error is not None:
                raise translate(KafkaException(entry.error))
        return {
            (e.topic, e.partition): Committed.read(e.offset, e.metadata)
            for e in found
            if e.offset >= 0
        }

    def watermarks(self, partition: Partition, timeout_s: float) -> tuple[int, int]:
        """Return the offset of the oldest record that the partition still has, and its end."""
        tp = TopicPartition(*partition)

        def ask(left_s: float) -> Any:
            try:
                return self._consumer.get_watermark_offsets(tp, timeout=left_s)
            except KafkaException as exception:
                if exception.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    # A broker that starts may have said so, and librdkafka keeps that in mind.
                    self._consumer.list_topics(partition[0], timeout=left_s)
                raise

        low, high = retry(ask, timeout_s, waits_for_topic=True)
        return int(low), int(high)

    def known_end(self, partition: Partition) -> int:
        """Return the high watermark that the last fetch saw, -1001 before the first; no I/O."""
        offsets = self._consumer.get_watermark_offsets(TopicPartition(*partition), cached=True)
        return int(offsets[1]) if offsets else -1001

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        """Return what has arrived, at most `max_records`, after waiting up to `wait_s` for it.

        Offsets of a partition ascend from the one at which it was assigned, and each comes once,
        even if librdkafka delivers records again or the consumer was replaced: the caller need not
        check that. The records of a partition are one batch, unless the headers of some cannot be
        read. Records of a partition that is not assigned are left out.
        """
        fetched = Fetched(errors=self._gone())
        found: dict[Partition, _Columns] = {}

        def take(messages: list[Message]) -> None:
            for partition, run in self._runs(messages):
                columns = found.get(partition)
                if columns is None:
                    begin = self._next.get(partition)
                    if begin is None:
                        continue
                    columns = found[partition] = _Columns(partition, begin)
                columns.add(run)

        self._receive(max_records, wait_s, fetched, take)
        for partition, columns in found.items():
            self._next[partition] = columns.next_offset
            fetched.batches += columns.batches()
        for partition, offset in fetched.ends:
            if partition in self._next:
                # An end may have been reached before these records came.
                self._next[partition] = max(self._next[partition], offset)
        if fetched.batches or fetched.ends or fetched.errors:
            if self._stall_watch is not None:
                self._stall_watch.heard(time.monotonic())
        elif self._lifeline.is_lost:
            logger.info("a consumer lost all brokers, and is replaced")
            self._replace()
        elif self._stall_watch is not None:
            self._replace_if_it_stands_still(self._stall_watch)
        return fetched

    def _replace_if_it_stands_still(self, watch: StallWatch) -> None:
        reading = {p: offset for p, offset in self._next.items() if p not in self._paused}
        if watch.stands_still(reading, time.monotonic()):
            places = {f"{topic}-{number}": at for (topic, number), at in reading.items()}
            logger.warning("a consumer stands still, and is replaced", positions=places)
            self._replace()

    def _replace(self) -> None:
        # In a thread of its own: who knows what the old one waits for.
        threading.Thread(target=self._consumer.close, name="close", daemon=True).start()
        self._consumer, self._lifeline = connect_with_lifeline(Consumer, self._settings)
        self._assigned, self._topics = {}, set()
        self.assign(self._next.copy())
        self.pause(self._paused.copy())

    def fetch_changes(self, max_records: int, wait_s: float) -> Changes:
        """Return what has arrived as `fetch` does, of the one partition that is assigned.

        Cheaper, for whoever needs no more than the last value of each key.
        """
        fetched = Fetched()
        (partition,) = self._next
        changes = Changes({}, 0, None, fetched.errors)
        last: dict[Any, Any] = changes.last

        def take(messages: list[Message]) -> None:
            messages, offsets = _unseen(messages, self._next[partition])
            if offsets:
                last.update(
                    zip(map(Message.key, messages), map(Message.value, messages), strict=True)
                )
                changes.records += len(messages)
                changes.position = self._next[partition] = offsets[-1] + 1

        self._receive(max_records, wait_s, fetched, take)
        last.pop(None, None)
        reached = [offset for _, offset in fetched.ends]
        if changes.position is not None:
            reached.append(changes.position)
        changes.position = max(reached, default=None)
        return changes

    def _receive(
        self,
        max_records: int,
        wait_s: float,
        fetched: Fetched,
        take: Callable[[list[Message]], None],
    ) -> None:
        """Call `take` with the records that have arrived; put ends and errors into `fetched`.

        It is called with a chunk at a time, which is freed before the next one is made. So all
        chunks use the same memory, which stays in the processor's cache.
        """
        first = self._consumer.poll(wait_s)
        if first is None:
            return
        messages = [first]
        del first
        left = max_records - 1
        while True:
            wanted = min(left, _CHUNK_RECORDS - len(messages))
            # A batch call with a timeout would wait for the batch to fill.
            more = self._consumer.consume(wanted, 0) if wanted else []
            left -= wanted
            is_last = len(more) < wanted or not left
            messages += more
            del more
            if any(map(Message.error, messages)):
                messages = self._set_aside_errors(messages, fetched)
            if messages:
                take(messages)
            if is_last:
                return
            messages = []

    def _runs(self, messages: list[Message]) -> Iterable[tuple[Partition, list[Message]]]:
        """Split records into runs of one partition."""
        partition = _partition(messages[0])
        if len(self._assigned) == 1:
            return [(partition, messages)]
        topics, numbers = list(map(Message.topic, messages)), list(map(Message.partition, messages))
        size = len(messages)
        if numbers.count(partition[1]) == size and topics.count(partition[0]) == size:
            return [(partition, messages)]
        places = pairwise(zip(topics, numbers, strict=True))
        starts = [0, *(at for at, (one, other) in enumerate(places, 1) if one != other), size]
        return [(_partition(messages[at]), messages[at:to]) for at, to in pairwise(starts)]

    def _set_aside_errors(self, messages: list[Message], fetched: Fetched) -> list[Message]:
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                fetched.ends.append((_partition(message), message.offset() or 0))
            elif self._is_of_now(message) and not is_passing(error):
                fetched.errors.append((_partition(message), explain(error)))
        return records

    def _is_of_now(self, error: Message) -> bool:
        """Tell whether an error is of a partition as it is assigned now.

        librdkafka drops the records of an assignment that has ended, but not the error "offset out
        of range" of one: it is delivered to the next assignment of the partition. The offset tells
        them apart, because only who fell behind while others went on can have had it.
        """
        start = self._assigned.get(_partition(error))
        if start is None:
            return False
        is_lost_offset = error.error().code() == KafkaError._AUTO_OFFSET_RESET  # type: ignore[union-attr]
        return not is_lost_offset or (error.offset() or 0) >= start

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


class _Columns:
    """Makes columns of the records of one partition, as they come from one fetch.

    A record whose headers are broken is a batch of its own, without its headers. The first call of
    `headers` for it raises; a second one would return tuples with null pointers in them.
    """

    def __init__(self, partition: Partition, begin: int) -> None:
        self.next_offset = begin
        """The first offset that is not in here; what comes before it is left out."""
        self._topic, self._number = partition
        self._batches: list[RecordBatch] = []
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._offsets: list[int] = []
        self._headers: list[Headers] | None = None

    def add(self, messages: list[Message]) -> None:
        """Add records."""
        messages, offsets = _unseen(messages, self.next_offset)
        if offsets:
            self.next_offset = offsets[-1] + 1
        unread = iter(messages)
        start = 0
        while start < len(messages):
            headers: list[Any] = []
            try:
                headers.extend(map(Message.headers, unread))
            except SystemError:
                bad = start + len(headers)
                self._append(messages[start:bad], offsets[start:bad], headers)
                self._end_batch()
                self._append(messages[bad : bad + 1], offsets[bad : bad + 1], [None])
                self._end_batch(BROKEN_HEADERS)
                start = bad + 1
            else:
                self._append(messages[start:], offsets[start:], headers)
                break

    def batches(self) -> list[RecordBatch]:
        """Return all that was added."""
        self._end_batch()
        return self._batches

    def _append(self, messages: list[Message], offsets: list[int], headers: list[Any]) -> None:
        if self._headers is None and any(headers):
            self._headers = [None] * len(self._offsets)
        if self._headers is not None:
            self._headers += headers
        self._offsets += offsets
        self._keys += map(Message.key, messages)
        self._values += map(Message.value, messages)
        self._timestamps += [time for _, time in map(Message.timestamp, messages)]

    def _end_batch(self, error: str = "") -> None:
        if self._offsets:
            self._batches.append(
                RecordBatch(
                    self._topic,
                    self._number,
                    self._keys,
                    self._values,
                    self._timestamps,
                    self._offsets,
                    self._headers,
                    error,
                )
            )
            self._begin_batch()


def _unseen(messages: list[Message], begin: int) -> tuple[list[Message], list[int]]:
    """Return the records, and their offsets, without what comes before `begin` or came already.

    librdkafka's issues 4637 and 5345.
    """
    offsets: list[Any] = list(map(Message.offset, messages))
    if offsets[0] >= begin and not any(map(ge, offsets, islice(offsets, 1, None))):
        return messages, offsets
    kept: list[Message] = []
    end = begin
    for message, offset in zip(messages, offsets, strict=True):
        if offset >= end:
            kept.append(message)
            end = offset + 1
    logger.warning(
        "records delivered twice are ignored",
        topic=messages[0].topic(),
        partition=messages[0].partition(),
        records=len(messages) - len(kept),
    )
    return kept, [message.offset() for message in kept]  # type: ignore[misc]

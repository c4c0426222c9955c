"""The reader of the data plane: committed records of partitions, from given offsets on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import ge
from typing import Any, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from kafka_pipeline.common.committed import NO_EPOCH, Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.clients import (
    MissingRightError,
    Partition,
    TransactionFailedError,
    client_config,
    explain,
    follow_leaders,
    is_out_of_range,
    is_passing,
    retry,
    translate,
)
from kafka_pipeline.common.kafka.managed_consumer import (
    ConsumerSignals,
    ManagedConsumer,
    truncation,
)
from kafka_pipeline.common.kafka.stall_watch import SILENCE_S
from kafka_pipeline.common.kafka.topic_watch import Describer, TopicIdWatch
from kafka_pipeline.common.record_batch import KafkaHeaders, RecordBatch

# librdkafka's defaults wait up to 1 s; these wait milliseconds. Fetching each record by itself
# takes more CPU time than processing it, so brokers wait for more.
_LOW_LATENCY = {
    "fetch_wait_max_ms": 10,
    "fetch_min_bytes": 16_384,
    "fetch_queue_backoff_ms": 5,
    "fetch_error_backoff_ms": 50,
}
# Brokers answer at once when a record comes. Only ends, and partitions that are added, wait longer.
_AT_REST = {"fetch.wait.max.ms": 500, "fetch.min.bytes": 1}
# The largest possible response. With the default, 100 MB, a record of that size would stop the
# consumer forever.
_MAX_RESPONSE_BYTES = 2_147_483_647
_FIRST_WAIT_S = 2.0
_FIRST_COMMIT_S = 6.0
"""A little longer than a coordinator waits for its replicas (`offsets.commit.timeout.ms`, 5 s)."""
_COMMIT_POLL_S = 0.005
_EPOCH_POLL_S = 0.1


class ReadError(NamedTuple):
    """Why a partition is not read any further, until it is assigned again."""

    partition: Partition
    reason: str
    is_out_of_range: bool = False
    """Whether its leader does not have the offset. A leader that is cut off from the other brokers
    may be wrong about that, so the caller starts again, and asks others."""

    def __str__(self) -> str:
        topic, number = self.partition
        return f"{topic}[{number}]: {self.reason}"


@dataclass(slots=True)
class Fetched:
    """The result of one fetch: records, the ends that were reached, and errors of partitions."""

    batches: list[RecordBatch] = field(default_factory=list)
    ends: list[tuple[Partition, int]] = field(default_factory=list)
    errors: list[ReadError] = field(default_factory=list)


@dataclass(slots=True)
class Changes:
    """The result of one fetch of a changelog: the last value per key, `None` for a deletion.

    `records` counts the records that were read.
    """

    last: dict[bytes, bytes | None] = field(default_factory=dict)
    records: int = 0
    errors: list[ReadError] = field(default_factory=list)


class PartitionReader:
    """Reads committed records of partitions from explicit offsets; never resets or skips any.

    The tasks of a PipelineThread share readers; each starting task has one of its own. Offsets are
    committed by the producers' transactions, under a group to which nobody ever subscribes. For one
    thread at a time, see `ManagedConsumer`.
    """

    def __init__(self, config: Config, group: str, brokers: Describer | None = None) -> None:
        """Connect. With `brokers`, `fetch` also reports deleted topics.

        It then also replaces a stalled consumer, and one that has nothing to do for a while by one
        that asks less often. A consumer that lost all brokers is always replaced.
        """
        self._group = group
        self._watch = TopicIdWatch(brokers) if brokers else None
        settings = client_config(
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
        follow_leaders(settings)
        self._settings = settings
        self._expect_commits()
        silence_s, at_rest = (SILENCE_S, _AT_REST) if brokers else (None, {})
        self._consumer = ManagedConsumer(settings, silence_s, at_rest)
        self._epochs: dict[Partition, int] = {}

    @property
    def group_metadata(self) -> Any:
        """The group's metadata, which a transaction needs to commit this reader's offsets."""
        return self._consumer.client.consumer_group_metadata()

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offsets to read next, of all partitions that are assigned."""
        return self._consumer.positions

    @property
    def paused(self) -> frozenset[Partition]:
        """The assigned partitions that are paused."""
        return self._consumer.paused

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Start reading each partition at its offset."""
        self._consumer.assign(positions)

    def unassign(self, partitions: Iterable[Partition]) -> None:
        """Stop reading these partitions; those that are not assigned are ignored."""
        before = self._topics()
        self._consumer.unassign(partitions)
        self._epochs = {p: epoch for p, epoch in self._epochs.items() if p in self.positions}
        if self._watch is not None:
            for topic in before - self._topics():
                self._watch.forget(topic)

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching from these assigned partitions until they are resumed."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[Partition]) -> None:
        """Resume paused partitions at their positions."""
        self._consumer.resume(partitions)

    def committed(
        self, partitions: Sequence[Partition], timeout_s: float, proof: Partition | None = None
    ) -> dict[Partition, Committed]:
        """Return the group's committed positions; partitions never committed are left out.

        Waits for pending transactions to complete (KIP-447, `require_stable`). If the right to read
        the group is missing, raises within two seconds, provided that no partitions are assigned
        yet.

        A coordinator that is cut off from the other brokers does not know that it no longer is one,
        and answers with offsets that may be too old. With `proof`, a partition that the group does
        not read, the reader first commits offset 0 there. Only a coordinator whose replicas follow
        can do that, and the next request goes to the same one. Asks for `proof` only before
        partitions are assigned.
        """
        wanted = [TopicPartition(*p) for p in partitions]
        try:
            found = self._ask(wanted, timeout_s, proof)
            for entry in found:
                if entry.error is not None:
                    raise translate(KafkaException(entry.error))
        except MissingRightError as error:
            if error.is_on_a_topic and proof is not None:
                raise error.naming(f"Read of topic {proof[0]}") from error
            raise error.naming(f"Describe of group {self._group}") from error
        return {
            (e.topic, e.partition): Committed.read(e.offset, e.metadata)._replace(
                leader_epoch=_known(e.leader_epoch)
            )
            for e in found
            if e.offset >= 0
        }

    def _ask(self, wanted: list[TopicPartition], timeout_s: float, proof: Partition | None) -> Any:
        """Ask for offsets, with a `proof` until an answer comes at once after the commit.

        If it takes longer, librdkafka may have looked for the coordinator again meanwhile.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            if proof is not None:
                self._find_current(proof, deadline_s - time.monotonic())
            asked_s = time.monotonic()
            found = retry(lambda left: self._ask_committed(wanted, left), timeout_s)
            if proof is None or time.monotonic() - asked_s < _FIRST_WAIT_S:
                return found
            if time.monotonic() > deadline_s:
                raise TransactionFailedError("the group's coordinator does not answer in time")

    def _ask_committed(self, wanted: list[TopicPartition], timeout_s: float) -> Any:
        """Ask with growing timeouts, and check in between whether a right is missing.

        Without this check, librdkafka would search for the coordinator until the time is up.
        """
        deadline_s = time.monotonic() + timeout_s
        wait_s = _FIRST_WAIT_S
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            try:
                return self._consumer.client.committed(wanted, timeout=min(wait_s, left_s))
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError._TIMED_OUT:
                    raise
                refusal = self._consumer.refusal()
                if refusal is not None:
                    raise KafkaException(refusal) from exception
                if left_s <= wait_s:
                    raise
            wait_s *= 2

    def _find_current(self, proof: Partition, timeout_s: float) -> None:
        """Find a coordinator that commits an offset of a partition, with new consumers if need be.

        A consumer that learns of the coordinator from a broker that is cut off asks it again and
        again.
        """
        deadline_s, wait_s = time.monotonic() + timeout_s, _FIRST_COMMIT_S
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            try:
                retry(lambda left: self._commit(proof, left), min(wait_s, left_s), True)
            except TransactionFailedError:
                self._replace_consumer()
                if left_s <= wait_s:
                    raise
            else:
                return
            wait_s *= 2

    def _replace_consumer(self) -> None:
        """Go on with a new consumer: closing one whose commit is under way would wait for that."""
        self._expect_commits()
        self._consumer.replace()

    def _expect_commits(self) -> None:
        """Let only the next consumer report commits: a former one may still do so as it closes."""
        self._commits: list[KafkaError | None] = []
        """The outcomes of commits since the last one began; `None` is success."""
        self._settings["on_commit"] = partial(_note_commit, self._commits)

    def _commit(self, proof: Partition, timeout_s: float) -> None:
        """Commit offset 0 of a partition, and wait until the coordinator's replicas have that."""
        assert not self.positions, "this would drop records"
        deadline_s = time.monotonic() + timeout_s
        self._commits.clear()
        self._consumer.client.commit(offsets=[TopicPartition(*proof, 0)], asynchronous=True)
        while not self._commits:
            if (refusal := self._consumer.refusal(_COMMIT_POLL_S)) is not None:
                self._replace_consumer()
                raise KafkaException(refusal)
            if time.monotonic() > deadline_s:
                reason = "the group's coordinator does not commit: it may be cut off from others"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason))
        if (error := self._commits[0]) is not None:
            raise KafkaException(error)

    def losses(self, positions: Mapping[Partition, Committed], timeout_s: float) -> list[ReadError]:
        """Return which partitions no longer have what was read before these positions (KIP-320).

        They may have grown beyond the positions since. Their leaders, which have a newer epoch, say
        where the epoch of a position has ended. Only before partitions are assigned. Raises
        `TransactionFailedError` if a leader does not answer.
        """
        client, waiting, signals = self._consumer.client, set(positions), ConsumerSignals()
        deadline_s = time.monotonic() + timeout_s
        # A consumer that knows nothing of a topic asks about the epoch before it fetches.
        client.incremental_assign(
            [
                TopicPartition(*p, at.offset, leader_epoch=at.leader_epoch)
                for p, at in positions.items()
            ]
        )
        self._consumer.find_leaders({topic for topic, _ in positions})
        while waiting:
            if time.monotonic() > deadline_s:
                topic, number = min(waiting)
                raise TransactionFailedError(f"{topic}[{number}]: its leader does not answer")
            if (message := client.poll(_EPOCH_POLL_S)) is None:
                continue
            place: Any = message.topic(), message.partition()
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                if is_passing(error) or place not in waiting:
                    continue
                signals.errors.append((place, truncation(error, message) or error))
            waiting.discard(place)
        client.incremental_unassign([TopicPartition(*p) for p in positions])
        return _explained(signals)

    def leader_epoch(self, partition: Partition) -> int:
        """Return the epoch of the leader that took the last record of a partition; -1 if unknown.

        It is that of the latest `fetch`. No I/O.
        """
        return self._epochs.get(partition, NO_EPOCH)

    def known_end(self, partition: Partition) -> int:
        """Return the high watermark seen by the last fetch, -1001 before the first; no I/O."""
        tp = TopicPartition(*partition)
        offsets = self._consumer.client.get_watermark_offsets(tp, cached=True)
        return int(offsets[1]) if offsets else -1001

    def fetch(self, max_records: int, wait_s: float) -> Fetched:
        """Return the records that have arrived, at most `max_records`, waiting up to `wait_s`.

        Offsets of a partition ascend from the one at which it was assigned, without duplicates,
        even if librdkafka delivers records again or the consumer was replaced. The records of a
        partition form one batch, except for those whose headers cannot be read. Records of
        unassigned partitions are left out.
        """
        found: dict[Partition, Columns] = {}

        def take(partition: Partition, messages: list[Message]) -> int:
            columns = found.get(partition)
            if columns is None:
                columns = found[partition] = Columns(partition, self.positions[partition])
            columns.add(messages)
            self._epochs[partition] = _known(messages[-1].leader_epoch())
            return columns.next_offset

        signals = self._consumer.receive(max_records, wait_s, take)
        batches = [batch for columns in found.values() for batch in columns.batches()]
        return Fetched(batches, signals.ends, self._gone() + _explained(signals))

    def fetch_changes(self, max_records: int, wait_s: float) -> Changes:
        """Like `fetch` for one assigned partition, but return only the last value of each key.

        This is cheaper.
        """
        changes = Changes()
        last: dict[Any, Any] = changes.last

        def take(partition: Partition, messages: list[Message]) -> int:
            position = self.positions[partition]
            messages, offsets = unseen(messages, position)
            if not offsets:
                return position
            last.update(zip(map(Message.key, messages), map(Message.value, messages), strict=True))
            changes.records += len(messages)
            return offsets[-1] + 1

        changes.errors = _explained(self._consumer.receive(max_records, wait_s, take))
        last.pop(None, None)
        return changes

    def close(self) -> None:
        """Close the consumer; blocks for some milliseconds."""
        self._consumer.close()

    def _topics(self) -> set[str]:
        return {topic for topic, _ in self.positions}

    def _gone(self) -> list[ReadError]:
        if self._watch is None:
            return []
        gone = self._watch.gone(self._topics())
        return [ReadError(p, gone[p[0]]) for p in self.positions if p[0] in gone]


def _known(epoch: int | None) -> int:
    return NO_EPOCH if epoch is None else epoch


def _note_commit(
    commits: list[KafkaError | None], error: KafkaError | None, places: list[TopicPartition]
) -> None:
    commits.append(error or places[0].error)


def _explained(signals: ConsumerSignals) -> list[ReadError]:
    return [
        ReadError(p, explain(error, f"Read of topic {p[0]}"), is_out_of_range(error))
        for p, error in signals.errors
    ]


BROKEN_HEADERS = "the name of a header is not UTF-8"

logger = structlog.get_logger()


class Columns:
    """Collects the records of one partition from one fetch into columns.

    A record with broken headers becomes a batch of its own, without headers. Its first `headers()`
    call raises; a second call would return tuples with null pointers.
    """

    def __init__(self, partition: Partition, begin: int) -> None:
        self.next_offset = begin
        """The offset to add next; records before it are left out."""
        self._topic, self._number = partition
        self._batches: list[RecordBatch] = []
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._offsets: list[int] = []
        self._headers: list[KafkaHeaders] | None = None

    def add(self, messages: list[Message]) -> None:
        """Add records."""
        messages, offsets = unseen(messages, self.next_offset)
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
        """Return all records that were added."""
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


def unseen(messages: list[Message], begin: int) -> tuple[list[Message], list[int]]:
    """Return the records and their offsets, without those before `begin` and without duplicates.

    librdkafka may deliver such records (its issues 4637 and 5345).
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

"""A Kafka cluster in memory: topics, committed offsets, and the coordinator of transactions.

It behaves as Kafka 4 does towards a client that lacks KIP-890. A decided transaction becomes
visible only when its markers are written, which happens after the answer. A producer that fences an
id waits for that. Only one thread may use it at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.committed import Committed, offsets_of
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.record_batch import MAX_OVERHEAD, KafkaHeaders, record_size
from kafka_pipeline.common.topics import TopicLimits, TopicSpec
from tests.memory.clock import Clock
from tests.memory.faults import Faults
from tests.memory.partition_log import Entry, Outcome, PartitionLog, Transaction

CLUSTER_ID = "memory"
_DEFAULTS: Mapping[str, str] = {
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
}
"""As Kafka's, but that records of tests may have any time."""


class Session(NamedTuple):
    """A producer's right to write, which lasts while it has its id's latest epoch."""

    transactional_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The description of a reader's group for a producer; nothing else looks into it."""

    group: str


@dataclass(slots=True)
class Topic:
    """A topic with its partitions."""

    id: str
    partitions: list[PartitionLog]
    limits: TopicLimits
    has_append_times: bool


@dataclass(slots=True)
class _Producer:
    """The coordinator's knowledge of a transactional id."""

    epoch: int = -1
    timeout_s: float = 0.0
    transaction: Transaction | None = None
    """The last transaction, until all its markers are written."""


@dataclass(slots=True)
class _Group:
    positions: dict[Partition, Committed] = field(default_factory=dict)
    pending: list[Transaction] = field(default_factory=list)
    former: list[dict[Partition, Committed]] = field(default_factory=list)
    """All earlier positions."""


def refusal(code: int, reason: str) -> KafkaException:
    """Return the exception that a client raises for a broker's error code."""
    return KafkaException(KafkaError(code, reason))


class Broker:
    """The whole cluster. Raises `KafkaException` with the error codes that Kafka returns."""

    def __init__(self, clock: Clock, faults: Faults | None = None) -> None:
        self.clock = clock
        self.faults = faults or Faults()
        self.topics: dict[str, Topic] = {}
        self.story: list[tuple[float, str]] = []
        """The events so far, each with its time; a failing test prints them."""
        self.decisions = 0
        """How many transactions were committed or aborted."""
        self._producers: defaultdict[str, _Producer] = defaultdict(_Producer)
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._unmarked = 0

    def tell(self, what: str) -> None:
        """Add to the story."""
        self.story.append((self.clock.now_s, what))

    # Topics

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        """Create topics; only what `TopicLimits` knows of their settings has an effect."""
        for spec in specs:
            settings = {**_DEFAULTS, **spec.config}
            append_times = settings["message.timestamp.type"] == "LogAppendTime"
            logs = [PartitionLog() for _ in range(spec.partitions)]
            limits = TopicLimits.of(settings)
            self.topics[spec.name] = Topic(f"{spec.name}-id", logs, limits, append_times)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions."""
        logs = self.topic(name).partitions
        logs += [PartitionLog() for _ in range(total - len(logs))]

    def topic(self, name: str) -> Topic:
        """Return a topic."""
        topic = self.topics.get(name)
        if topic is None:
            raise refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic {name} is not known")
        return topic

    def log(self, partition: Partition) -> PartitionLog:
        """Return the records of a partition."""
        name, number = partition
        logs = self.topic(name).partitions
        if number >= len(logs):
            raise refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{name}[{number}] is not known")
        return logs[number]

    def write(
        self,
        partition: Partition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: KafkaHeaders = None,
    ) -> int:
        """Write a record outside of transactions; return its offset."""
        return self._append(partition, key, value, timestamp, headers, None)

    # Groups

    def committed(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, Committed]:
        """Return committed positions; raises while a transaction with some of them is undecided."""
        known = self._groups[group]
        wanted = set(partitions)
        if any(not wanted.isdisjoint(open_.positions[group]) for open_ in known.pending):
            raise refusal(KafkaError.UNSTABLE_OFFSET_COMMIT, "offsets of an open transaction")
        return {p: known.positions[p] for p in partitions if p in known.positions}

    def committed_before(
        self, group: str, partitions: Sequence[Partition], random: Random
    ) -> dict[Partition, Committed]:
        """Return what a coordinator answers that is cut off since the group had fewer offsets."""
        known = self._groups[group]
        positions = random.choice([known.positions, *known.former])
        self.tell(f"a coordinator of {group} that is cut off says {offsets_of(positions)}")
        return {p: positions[p] for p in partitions if p in positions}

    def set_committed(self, group: str, positions: Mapping[Partition, Committed]) -> None:
        """Commit positions outside of transactions."""
        self._groups[group].positions.update(positions)

    def forget(self, group: str) -> None:
        """Delete the committed positions of a group, as an operator or the brokers may do."""
        self._groups[group].positions.clear()

    def positions_of(self, group: str) -> dict[Partition, Committed]:
        """Return the committed positions, whatever is pending."""
        return dict(self._groups[group].positions)

    def offsets_of(self, group: str) -> dict[Partition, int]:
        """Return the committed offsets, whatever is pending."""
        return offsets_of(self._groups[group].positions)

    # Transactions

    @property
    def is_settled(self) -> bool:
        """Whether all markers of decided transactions are written."""
        return not self._unmarked

    def init_producer(self, transactional_id: str, timeout_s: float) -> Session:
        """Fence older producers of an id, and abort its open transaction; KIP-98 and KIP-360.

        Refuses with `CONCURRENT_TRANSACTIONS` until the last transaction's markers are written.
        """
        known = self._producers[transactional_id]
        if known.transaction is not None:
            if known.transaction.outcome is Outcome.OPEN:
                known.epoch += 1
                self._decide(known, known.transaction, Outcome.ABORTED)
            if known.transaction is not None:
                raise refusal(KafkaError.CONCURRENT_TRANSACTIONS, "the last one is not over")
        known.epoch += 1
        known.timeout_s = timeout_s
        self.tell(f"{transactional_id} has epoch {known.epoch}")
        return Session(transactional_id, known.epoch)

    def is_current(self, session: Session) -> bool:
        """Return whether a session may still write."""
        return self._producers[session.transactional_id].epoch == session.epoch

    def append(
        self,
        session: Session,
        partition: Partition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: KafkaHeaders,
    ) -> int:
        """Write a record in the session's transaction; return its offset."""
        transaction = self._join(session)
        self.log(partition)
        transaction.partitions[partition] = None
        return self._append(partition, key, value, timestamp, headers, transaction)

    def add_offsets(
        self, session: Session, group: str, positions: Mapping[Partition, Committed]
    ) -> None:
        """Commit positions with the session's transaction."""
        transaction = self._join(session)
        pending = self._groups[group].pending
        if group not in transaction.positions:
            transaction.positions[group] = {}
            pending.append(transaction)
        transaction.positions[group].update(positions)

    def end(self, session: Session, outcome: Outcome) -> None:
        """Commit or abort the session's transaction; the markers follow."""
        known = self._require(session)
        transaction = known.transaction
        if transaction is None or transaction.outcome is not Outcome.OPEN:
            raise refusal(KafkaError.INVALID_TXN_STATE, "no transaction is open")
        self._decide(known, transaction, outcome)

    def _require(self, session: Session) -> _Producer:
        known = self._producers[session.transactional_id]
        if not self.is_current(session):
            raise refusal(
                KafkaError.PRODUCER_FENCED,
                f"{session.transactional_id} is in epoch {known.epoch}, not {session.epoch}",
            )
        return known

    def _join(self, session: Session) -> Transaction:
        """Return the session's open transaction, or begin one."""
        known = self._require(session)
        transaction = known.transaction
        if transaction is None:
            transaction = known.transaction = Transaction(session.transactional_id)
            limit_s = known.timeout_s + self.faults.abort_delay_s()
            self.clock.later(limit_s, lambda: self._expire(known, transaction))
        elif transaction.outcome is not Outcome.OPEN:
            raise refusal(KafkaError.CONCURRENT_TRANSACTIONS, "the last one is not over")
        return transaction

    def _expire(self, known: _Producer, transaction: Transaction) -> None:
        if transaction.outcome is Outcome.OPEN:
            self.tell(f"a transaction of {transaction.name} has timed out")
            known.epoch += 1
            self._decide(known, transaction, Outcome.ABORTED)

    def _decide(self, known: _Producer, transaction: Transaction, outcome: Outcome) -> None:
        self.tell(f"{transaction.name}: {outcome.name} {dict(transaction.positions)}")
        transaction.outcome = outcome
        transaction.missing_markers = len(transaction.partitions) + len(transaction.positions)
        self._unmarked += 1
        self.decisions += 1
        for partition in transaction.partitions:
            self._soon(lambda p=partition: self._mark(known, transaction, p))  # type: ignore[misc]
        for group in transaction.positions:
            self._soon(lambda g=group: self._settle(known, transaction, g))  # type: ignore[misc]

    def _soon(self, write_marker: Callable[[], None]) -> None:
        delay_s = self.faults.marker_delay_s()
        if delay_s:
            self.clock.later(delay_s, write_marker)
        else:
            write_marker()

    def _mark(self, known: _Producer, transaction: Transaction, partition: Partition) -> None:
        self.log(partition).mark(transaction, self.clock.wall_clock_ms())
        self._count_marker(known, transaction)

    def _settle(self, known: _Producer, transaction: Transaction, group: str) -> None:
        settled = self._groups[group]
        settled.pending.remove(transaction)
        if transaction.outcome is Outcome.COMMITTED:
            settled.former.append(dict(settled.positions))
            settled.positions.update(transaction.positions[group])
        self._count_marker(known, transaction)

    def _count_marker(self, known: _Producer, transaction: Transaction) -> None:
        transaction.missing_markers -= 1
        if not transaction.missing_markers:
            known.transaction = None
            self._unmarked -= 1

    def _append(
        self,
        partition: Partition,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: KafkaHeaders,
        transaction: Transaction | None,
    ) -> int:
        log, topic = self.log(partition), self.topics[partition[0]]
        limits, now_ms = topic.limits, self.clock.wall_clock_ms()
        size = MAX_OVERHEAD + len(key or b"") + len(value or b"")
        may_be_too_large = headers is not None or size > limits.size_bytes
        if may_be_too_large and record_size(key, value, headers) > limits.size_bytes:
            raise refusal(KafkaError.MSG_SIZE_TOO_LARGE, f"too large for topic {partition[0]}")
        if key is None and limits.needs_key:
            raise refusal(KafkaError.INVALID_RECORD, f"no key for topic {partition[0]}")
        if problem := limits.time_problem(timestamp, now_ms):
            raise refusal(KafkaError.INVALID_TIMESTAMP, f"topic {partition[0]}: {problem}")
        if topic.has_append_times:
            timestamp = now_ms
        return log.append(Entry(key, value, timestamp, headers, transaction))

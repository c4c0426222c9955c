"""A producer of transactions on the brokers in memory; see `TaskProducer` for the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import (
    NonRetriableError,
    Partition,
    TransactionFailedError,
    translate,
)
from kafka_pipeline.common.record_batch import KafkaHeaders, OutputRecord, record_size
from kafka_pipeline.streams.partitioning import default_partition
from tests.memory.broker import GroupMetadata, Session, refusal
from tests.memory.faults import CALM, CommitOutcome
from tests.memory.link import Link
from tests.memory.partition_log import Outcome

_BATCH_BYTES = 1_000_000
_SMALLEST_MESSAGE_MAX_BYTES = 1000
_FIRST_MS = 1
_LONGEST_DELAY_S = 15.0


class _Waiting(NamedTuple):
    """A record that is not sent yet."""

    partition: Partition
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: KafkaHeaders
    ends_state: bool = False


class MemoryProducer:
    """Queues what it sends; a commit or, now and then, chance delivers it to the brokers.

    As with librdkafka, errors surface later, in the calls that follow.
    """

    def __init__(
        self,
        link: Link,
        transactional_id: str,
        size_limits: Mapping[str, int],
        timeout_s: float,
        arcs: Mapping[str, int],
    ) -> None:
        self._arcs = arcs
        self._link = link
        self._broker = link.broker
        self._faults = link.faults
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._most = max([_SMALLEST_MESSAGE_MAX_BYTES, *size_limits.values()])
        self._batch_bytes = min([_BATCH_BYTES, *size_limits.values()])
        self._told = dict(size_limits)
        self._session: Session | None = None
        self._is_open = self._has_begun = False
        self._queue: list[_Waiting] = []
        self._state_offsets: dict[str, int] = {}
        self._connection_broke = False
        self._end: Exception | None = None
        link.on_cut.append(self._leave_behind)

    def fence(self, timeout_s: float, require: Callable[[], None] = lambda: None) -> None:
        """Fence every older producer of this id and abort its open transaction."""
        require()
        init = lambda: self._broker.init_producer(self._id, self._timeout_s)  # noqa: E731
        self._session = self._link.ask(init, timeout_s)
        self._travel()
        self._require_arcs()
        self._connection_broke = False

    @property
    def is_suspect(self) -> bool:
        """Whether a connection broke or the producer has failed."""
        return self._connection_broke or self._end is not None

    @property
    def is_fenced(self) -> bool:
        """Whether a newer producer has the id by now, or this one's transaction has timed out."""
        return self._session is not None and not self._broker.is_current(self._session)

    def begin(self) -> None:
        """Open a transaction; the brokers learn of it only when it contains something."""
        self.require_connected()
        if self._session is None or self._is_open:
            raise self._fail(refusal(KafkaError._STATE, "not the moment to begin"))
        self._state_offsets = {}
        self._is_open, self._has_begun = True, False

    def size_limit(self, topic: str) -> int:
        """Return the largest size of a record in a topic, in bytes."""
        return min(self._told[topic], self._most)

    def learn_size_limit(self, topic: str, limit: int) -> None:
        """Add an output topic with its size limit."""
        if limit < self._batch_bytes:
            raise NonRetriableError(f"topic {topic} takes batches of {limit} bytes")
        self._told[topic] = limit

    def num_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic."""
        return self._link.ask(lambda: len(self._broker.topic(topic).partitions), self._timeout_s)

    def send_columns(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[KafkaHeaders] | None,
        partitions: Sequence[int] | None,
    ) -> None:
        """Send records to the partitions that are given or that their keys determine."""
        for index, key in enumerate(keys):
            number = -1 if partitions is None else partitions[index]
            each = headers[index] if headers else None
            self._add(topic, key, values[index], number, timestamps[index] or _FIRST_MS, each)
        self._send_some()

    def send_records(self, records: Sequence[OutputRecord]) -> None:
        """Send records to the partitions that they name or that their keys determine."""
        for topic, key, value, partition, timestamp, headers in records:
            self._add(topic, key, value, partition, timestamp or _FIRST_MS, headers)
        self._send_some()

    def send_state(self, topic: str, partition: int, changes: Mapping[bytes, bytes | None]) -> None:
        """Send state changes; `commit` returns the offsets after them."""
        limit = self.size_limit(topic)
        for key, value in changes.items():
            if record_size(key, value, None) > limit:
                raise NonRetriableError(f"the state of a key of {len(key)} bytes is too large")
        now_ms = self._broker.clock.wall_clock_ms()
        for key, value in changes.items():
            self._add(topic, key, value, partition, now_ms, None)
        if changes:
            self._queue[-1] = self._queue[-1]._replace(ends_state=True)
        self._send_some()

    def send_now(self) -> None:
        """Deliver everything in the queue to the brokers."""
        while self._queue:
            self._reach(lambda: self._deliver(len(self._queue)))

    def deliver_state(self) -> dict[str, int]:
        """Deliver all records; return the end of the state, by topic."""
        self.require_connected()
        self.send_now()
        return self._state_offsets

    def send_offsets(
        self, positions: Mapping[Partition, Committed], group_metadata: GroupMetadata
    ) -> None:
        """Add positions to the transaction."""
        if not isinstance(group_metadata, GroupMetadata):
            raise TypeError("offsets are those of a group")
        if positions:
            session, group = self._require_session(), group_metadata.group
            self._has_begun = True
            self._reach(lambda: self._broker.add_offsets(session, group, positions))

    def commit(
        self, positions: Mapping[Partition, Committed], group_metadata: Any
    ) -> dict[str, int]:
        """Commit the transaction together with positions; return the end of the state, by topic."""
        self.require_connected()
        if not self._is_open:
            raise self._fail(refusal(KafkaError._STATE, "no transaction is open"))
        self._travel()
        self._require_arcs()
        outcome = self._faults.commit_outcome()
        if outcome is not CommitOutcome.DONE:
            self._broker.tell(f"a commit of {self._id}: {outcome.name}")
        if outcome is CommitOutcome.LOST_BEFORE_OFFSETS:
            raise self._fail(refusal(KafkaError._TIMED_OUT, "no answer"))
        self.send_now()
        self.send_offsets(positions, group_metadata)
        if self._has_begun:
            self._decide(outcome)
        self._is_open = False
        self._travel()
        if self._state_offsets and self._faults.happens(self._faults.weather.unknown_offset):
            return {}
        return self._state_offsets

    def require_connected(self) -> None:
        """Raise if a connection broke, or raise the error that has ended the producer."""
        if self._end is not None:
            raise self._end
        if self._connection_broke:
            raise TransactionFailedError("the connection to a broker broke")

    def close(self) -> None:
        """Drop the producer; an open transaction stays open."""
        self._leave_behind()
        self._end = RuntimeError("the producer is closed")
        if self._leave_behind in self._link.on_cut:
            self._link.on_cut.remove(self._leave_behind)

    def _require_arcs(self) -> None:
        for topic, count in self._arcs.items():
            if len(self._broker.topic(topic).partitions) != count:
                raise NonRetriableError(f"topic {topic} has other partitions than {count}")

    def _decide(self, outcome: CommitOutcome) -> None:
        self._travel()
        session = self._require_session()

        def end() -> None:
            self._broker.end(session, Outcome.COMMITTED)

        def end_if_not_fenced() -> None:
            try:
                end()
            except KafkaException as error:
                self._broker.tell(f"a late commit of {self._id} is refused: {error}")

        if outcome is CommitOutcome.SLOW:
            self._broker.clock.advance(self._faults.random.random() * _LONGEST_DELAY_S)
        elif outcome is CommitOutcome.LATE:
            delay_s = self._faults.random.random() * _LONGEST_DELAY_S
            self._broker.clock.later(delay_s, end_if_not_fenced)
        if outcome not in (CommitOutcome.LOST, CommitOutcome.LATE):
            self._reach(end)
        if outcome in (CommitOutcome.LOST, CommitOutcome.LATE, CommitOutcome.ANSWER_LOST):
            raise self._fail(refusal(KafkaError._TIMED_OUT, "no answer"))

    def _require_session(self) -> Session:
        if self._session is None:
            raise self._fail(refusal(KafkaError._STATE, "not initialized"))
        return self._session

    def _add(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        timestamp: int,
        headers: KafkaHeaders,
    ) -> None:
        if self._end is not None:
            raise self._end
        if not self._is_open:
            raise self._fail(refusal(KafkaError._STATE, "no transaction is open"))
        if partition < 0:
            try:
                count = len(self._broker.topic(topic).partitions)
            except KafkaException as exception:
                raise self._fail(exception) from exception
            if key is None:
                partition = self._faults.random.randrange(count)
            else:
                partition = default_partition(key, count)
        self._queue.append(_Waiting((topic, partition), key, value, timestamp, headers))

    def _send_some(self) -> None:
        """Let the client's background thread send what it can."""
        self._travel()
        if self._queue and self._faults.happens(self._faults.weather.early_send):
            try:
                self._deliver(self._faults.random.randint(1, len(self._queue)))
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError.CONCURRENT_TRANSACTIONS:
                    self._fail(exception)

    def _deliver(self, count: int) -> None:
        """Deliver the first records of the queue to the brokers."""
        session, sent = self._require_session(), 0
        self._has_begun = True
        try:
            for record in self._queue[:count]:
                offset = self._broker.append(session, *record[:5])
                sent += 1
                if record.ends_state:
                    self._state_offsets[record.partition[0]] = offset + 1
        finally:
            del self._queue[:sent]

    def _reach(self, call: Any) -> None:
        try:
            self._link.ask(call, self._timeout_s)
        except Exception as error:
            self._end = error
            raise

    def _travel(self) -> None:
        self._link.travel()
        if self._faults.happens(self._faults.weather.broken_connection):
            self._broker.tell(f"a connection of {self._id} breaks")
            self._connection_broke = True

    def _fail(self, exception: KafkaException) -> Exception:
        self._end = translate(exception)
        return self._end

    def _leave_behind(self) -> None:
        """Drop the queue; some of its records may already be on the way and arrive."""
        session, queue, self._queue = self._session, self._queue, []
        if session is None or self._faults.weather is CALM:
            return
        for record in queue[: self._faults.part(len(queue), 1.0)]:
            delay_s = self._faults.random.random()
            self._broker.clock.later(delay_s, lambda r=record: self._arrive(session, r))  # type: ignore[misc]

    def _arrive(self, session: Session, record: _Waiting) -> None:
        try:
            self._broker.append(session, *record[:5])
        except KafkaException as error:
            self._broker.tell(f"a late record of {self._id} is refused: {error}")

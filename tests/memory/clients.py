"""The factory of clients for the brokers in memory: each worker has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import GONE_AFTER_S, NonRetriableError, Partition
from kafka_pipeline.common.topics import ExistingTopic, TopicLimits
from tests.memory.broker import CLUSTER_ID, Broker
from tests.memory.faults import Faults
from tests.memory.link import Link
from tests.memory.partition_log import PartitionLog
from tests.memory.producer import MemoryProducer
from tests.memory.reader import MemoryReader

T = TypeVar("T")

_REQUEST_TIMEOUT_S = 30


class MemoryBrokers:
    """Answers questions about topics, as `Admin` does."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def check_broker(self, timeout_s: float = 20) -> str:
        """Return the id of the cluster."""
        self._link.travel()
        return CLUSTER_ID

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of those topics that exist."""
        self._link.travel()
        topics = self._link.broker.topics
        return {name: len(topics[name].partitions) for name in names if name in topics}

    def existing_topics(self, names: Sequence[str]) -> dict[str, ExistingTopic]:
        """Return the id and the number of partitions of each topic. Raises as `topic_ids`."""
        topics = self._link.broker.topics
        return {
            name: ExistingTopic(id_, len(topics[name].partitions))
            for name, id_ in self.topic_ids(names).items()
        }

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return the id of each topic; raises `NonRetriableError` for one that stays missing."""
        self._link.travel()
        topics = self._link.broker.topics
        if not topics.keys() >= set(names):
            self._link.clock.advance(GONE_AFTER_S)
            missing = set(names) - topics.keys()
            if missing:
                raise NonRetriableError(f"topic {min(missing)} does not exist (any more)")
        return {name: topics[name].id for name in names}

    def missing_rights(self, needed: Mapping[str, Collection[str]]) -> list[str]:
        """Return that nothing is missing."""
        return []

    def topic_limits(self, names: Sequence[str]) -> dict[str, TopicLimits]:
        """Return what each topic accepts."""
        topic = self._link.broker.topic
        return self._ask(lambda: {name: topic(name).limits for name in names})

    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the end offset of each partition, including open transactions.

        A leader that is cut off gives the one at that time.
        """
        log, faults = self._link.broker.log, self._link.faults
        ends = self._ask(lambda: {partition: log(partition).end for partition in partitions})
        return {p: faults.part(end, faults.weather.cut_off) for p, end in ends.items()}

    def stable_ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the last stable offset of each partition."""
        log = self._link.broker.log
        return self._ask(lambda: {partition: log(partition).stable_end for partition in partitions})

    def leader_epochs(self, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        """Return that no epoch is known."""
        return dict.fromkeys(partitions)

    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Return the offset of the oldest record of each partition."""
        log = self._link.broker.log
        return self._ask(lambda: {partition: log(partition).start for partition in partitions})

    def offsets_at(
        self, partitions: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]:
        """Return the offset of the first record at or after a time, if there is one."""
        log = self._link.broker.log
        return self._ask(lambda: {p: log(p).first_at(timestamp_ms) for p in partitions})

    def _ask(self, call: Callable[[], T]) -> T:
        return self._link.ask(call, _REQUEST_TIMEOUT_S)


class MemoryPositions:
    """Answers a `TimeWatch`, as `GroupPositions` does; others may act between two answers."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def committed(
        self, wanted: Mapping[str, Collection[Partition]]
    ) -> Mapping[str, Mapping[Partition, Committed]]:
        """Return the positions of groups that are committed, whatever is pending."""
        answers = {}
        for group, partitions in wanted.items():
            self._link.travel()
            found = self._link.broker.positions_of(group)
            answers[group] = {each: found[each] for each in partitions if each in found}
        return answers

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the end of each partition, open transactions included."""
        return {each: log.end for each, log in self._known(partitions).items()}

    def starts(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the offset of the oldest record of each partition."""
        return {each: log.start for each, log in self._known(partitions).items()}

    def _known(self, partitions: Collection[Partition]) -> dict[Partition, PartitionLog]:
        """Return the partitions that there are: a rescale leaves fewer of them."""
        self._link.travel()
        topics = self._link.broker.topics
        logs = {topic: topics[topic].partitions for topic, _ in partitions if topic in topics}
        return {
            (topic, number): logs[topic][number]
            for topic, number in partitions
            if topic in logs and number < len(logs[topic])
        }


class MemoryClients:
    """Creates the clients of one worker; see `Clients`."""

    def __init__(
        self, broker: Broker, transaction_timeout_s: float, faults: Faults | None = None
    ) -> None:
        self.link = Link(broker, faults or Faults())
        self._timeout_s = transaction_timeout_s
        self._brokers = MemoryBrokers(self.link)
        self._producers: dict[str, MemoryProducer] = {}

    @property
    def brokers(self) -> MemoryBrokers:
        """The client that all tasks share."""
        return self._brokers

    def new_brokers(self) -> MemoryBrokers:
        """Return another client of the same link."""
        return MemoryBrokers(self.link)

    def reader(self, group: str, *, is_watched: bool = False) -> MemoryReader:
        """Connect a reader; `is_watched` has no effect, since topics are never deleted."""
        return MemoryReader(self.link, group)

    def producer(
        self,
        transactional_id: str,
        size_limits: Mapping[str, int],
        arcs: Mapping[str, int] = {},
    ) -> MemoryProducer:
        """Connect a producer."""
        producer = MemoryProducer(self.link, transactional_id, size_limits, self._timeout_s, arcs)
        self._producers[transactional_id] = producer
        return producer

    def is_fenced(self, transactional_id: str) -> bool:
        """Whether another producer has taken over an id, or its transaction has timed out."""
        return self._producers[transactional_id].is_fenced

"""The Kafka clients of a PipelineThread, behind interfaces so that they can be replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import PipelineError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError
from kafka_pipeline.common.kafka.data import Changes, Fetched, PartitionReader, ReadError
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.process.spare_threads import SpareThreads
from kafka_pipeline.common.record_batch import KafkaHeaders, OutputRecord
from kafka_pipeline.common.topics import ExistingTopic, TopicLimits


class Reader(Protocol):
    """Reads committed records of partitions at explicit offsets; see `PartitionReader`."""

    @property
    def group_metadata(self) -> Any: ...
    @property
    def positions(self) -> Mapping[Partition, int]: ...
    @property
    def paused(self) -> frozenset[Partition]: ...
    def assign(self, positions: Mapping[Partition, int]) -> None: ...
    def unassign(self, partitions: Iterable[Partition]) -> None: ...
    def pause(self, partitions: Iterable[Partition]) -> None: ...
    def resume(self, partitions: Iterable[Partition]) -> None: ...
    def committed(
        self, partitions: Sequence[Partition], timeout_s: float, proof: Partition | None = ...
    ) -> dict[Partition, Committed]: ...
    def losses(
        self, positions: Mapping[Partition, Committed], timeout_s: float
    ) -> list[ReadError]: ...
    def known_end(self, partition: Partition) -> int: ...
    def leader_epoch(self, partition: Partition) -> int: ...
    def fetch(self, max_records: int, wait_s: float) -> Fetched: ...
    def fetch_changes(self, max_records: int, wait_s: float) -> Changes: ...
    def close(self) -> None: ...


class TransactionalProducer(Protocol):
    """Writes transactions one after another under a transactional id; see `TaskProducer`."""

    @property
    def is_suspect(self) -> bool: ...
    def fence(self, timeout_s: float, require: Callable[[], None] = ...) -> None: ...
    def begin(self) -> None: ...
    def size_limit(self, topic: str) -> int: ...
    def learn_size_limit(self, topic: str, limit: int) -> None: ...
    def num_partitions(self, topic: str) -> int: ...
    def send_columns(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[KafkaHeaders] | None,
        partitions: Sequence[int] | None,
    ) -> None: ...
    def send_records(self, records: Sequence[OutputRecord]) -> None: ...
    def send_state(
        self, topic: str, partition: int, changes: Mapping[bytes, bytes | None]
    ) -> None: ...
    def deliver_state(self) -> dict[str, int]: ...
    def commit(
        self, positions: Mapping[Partition, Committed], group_metadata: Any
    ) -> dict[str, int]: ...
    def require_connected(self) -> None: ...
    def close(self) -> None: ...


class Brokers(Protocol):
    """Answers questions about topics; see `Admin`."""

    def check_broker(self, timeout_s: float = 20) -> str: ...
    def partition_counts(self, names: Iterable[str]) -> dict[str, int]: ...
    def topic_ids(self, names: Sequence[str]) -> dict[str, str]: ...
    def existing_topics(self, names: Sequence[str]) -> dict[str, ExistingTopic]: ...
    def topic_limits(self, names: Sequence[str]) -> dict[str, TopicLimits]: ...
    def missing_rights(self, needed: Mapping[str, Collection[str]]) -> list[str]: ...
    def high_watermarks(self, partitions: Sequence[Partition]) -> dict[Partition, int]: ...
    def stable_ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]: ...
    def leader_epochs(self, partitions: Sequence[Partition]) -> dict[Partition, int | None]: ...
    def oldest_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]: ...
    def offsets_at(
        self, partitions: Sequence[Partition], timestamp_ms: int
    ) -> dict[Partition, int | None]: ...


class Clients(Protocol):
    """Creates the clients with which a PipelineThread and its tasks talk to the brokers."""

    @property
    def brokers(self) -> Brokers:
        """The client that all tasks share; any number of threads may use it."""

    def new_brokers(self) -> Brokers:
        """Connect a client that knows no leader of any partition yet."""

    def reader(self, group: str, *, is_watched: bool = False) -> Reader:
        """Connect a reader that uses the consumer group `group`.

        A watched reader also reports deleted topics, and replaces a consumer that stalls.
        """

    def producer(
        self,
        transactional_id: str,
        size_limits: Mapping[str, int],
        arcs: Mapping[str, int] = {},
    ) -> TransactionalProducer:
        """Connect a producer; `size_limits` holds `max.message.bytes` of each output topic.

        `arcs` holds the number of partitions that are read of output topics, where that is fixed.
        """


class KafkaClients:
    """`Clients` for a real cluster."""

    def __init__(self, config: Config, admin: Admin) -> None:
        self._config = config
        self._admin = admin
        self._threads = SpareThreads("offsets")

    @property
    def brokers(self) -> Admin:
        return self._admin

    def new_brokers(self) -> Admin:
        with _repeated_without_client():
            return Admin(self._config)

    def reader(self, group: str, *, is_watched: bool = False) -> PartitionReader:
        with _repeated_without_client():
            return PartitionReader(self._config, group, self._admin if is_watched else None)

    def producer(
        self,
        transactional_id: str,
        size_limits: Mapping[str, int],
        arcs: Mapping[str, int] = {},
    ) -> TaskProducer:
        with _repeated_without_client():
            return TaskProducer(self._config, transactional_id, size_limits, self._threads, arcs)


@contextmanager
def _repeated_without_client() -> Iterator[None]:
    """Raise `TransactionFailedError` if no client can be made now; tasks then start again.

    There may be no token, or somebody replaces the files of a certificate.
    """
    try:
        yield
    except PipelineError as error:
        raise TransactionFailedError(str(error)) from error

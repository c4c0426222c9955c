"""The brokers in memory do what Kafka does: the same cases on both, by the engine's clients."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.clients import (
    FencedError,
    NonRetriableError,
    Partition,
    TransactionFailedError,
)
from kafka_pipeline.common.topics import ExistingTopic
from kafka_pipeline.streams.partitioning import default_partition
from kafka_pipeline.taskmanager.clients import Reader, TransactionalProducer
from tests.memory.clusters import Cluster, KafkaCluster, MemoryCluster, send

_LIMIT = 1_000_000
_WAIT_S = 20.0
_QUIET_S = 0.5
_ids = itertools.count()


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.integration)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made: Cluster
    if request.param == "memory":
        made = MemoryCluster()
    else:
        made = KafkaCluster(request.getfixturevalue("bootstrap_servers"))
    yield made
    made.close()


@pytest.fixture
def partition(cluster: Cluster) -> Partition:
    """An empty one."""
    return cluster.make_topic(), 0


@pytest.fixture
def group() -> str:
    return f"group_{os.getpid()}_{next(_ids)}"


@pytest.fixture
def reader(cluster: Cluster, group: str) -> Iterator[Reader]:
    with closing(cluster.clients.reader(group)) as made:
        yield made


@pytest.fixture
def metadata(reader: Reader) -> Any:
    """The group of the reader, as a transaction wants to have it."""
    return reader.group_metadata


@pytest.fixture
def connect(cluster: Cluster, partition: Partition) -> Iterator[Callable[[], Any]]:
    """Makes producers with the same transactional id, each of which fences those before it."""
    made: list[TransactionalProducer] = []
    transactional_id = f"id_{os.getpid()}_{next(_ids)}"

    def make() -> TransactionalProducer:
        producer = cluster.clients.producer(transactional_id, {partition[0]: _LIMIT})
        made.append(producer)
        producer.fence(30)
        return producer

    yield make
    for producer in made:
        producer.close()


def offsets(cluster: Cluster, partition: Partition) -> tuple[int, int]:
    """Return the oldest offset and the last stable one."""
    brokers = cluster.clients.brokers
    return (
        brokers.oldest_offsets([partition])[partition],
        brokers.stable_ends([partition])[partition],
    )


class Log:
    """The records that a reader has fetched."""

    def __init__(self, cluster: Cluster, reader: Reader) -> None:
        self._clock = cluster.clock
        self._reader = reader
        self.records: list[tuple[int, bytes | None]] = []
        self.ends: list[int] = []
        self.errors: list[str] = []

    def fetch(self) -> None:
        fetched = self._reader.fetch(100, 0.05)
        for batch in fetched.batches:
            self.records += zip(batch.offsets, batch.values, strict=True)
        self.ends += [offset for _, offset in fetched.ends]
        self.errors += [error.reason for error in fetched.errors]

    def fetch_to(self, end: int) -> list[tuple[int, bytes | None]]:
        """Fetch until an end is reported; return all records so far."""
        self._fetch_until(lambda: self.ends[-1:] == [end], _WAIT_S)
        assert self.ends[-1:] == [end], (self.records, self.ends, self.errors)
        return self.records

    def fetch_error(self) -> str:
        """Fetch until there is an error; return it."""
        self._fetch_until(lambda: bool(self.errors), _WAIT_S)
        return self.errors[-1]

    def fetch_for_a_while(self) -> None:
        self._fetch_until(lambda: False, _QUIET_S)

    def _fetch_until(self, condition: Callable[[], bool], wait_s: float) -> None:
        deadline_s = self._clock.monotonic() + wait_s
        while not condition() and self._clock.monotonic() < deadline_s:
            self.fetch()


@pytest.fixture
def log(cluster: Cluster, reader: Reader) -> Log:
    return Log(cluster, reader)


def test_marker_takes_an_offset_and_an_end_is_reported_once(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    producer = connect()
    producer.begin()
    send(producer, partition, b"0", b"1")
    assert producer.commit({}, metadata) == {}
    reader.assign({partition: 0})
    assert log.fetch_to(3) == [(0, b"0"), (1, b"1")]
    log.ends.clear()
    log.fetch_for_a_while()
    assert log.ends == []
    cluster.write(partition, b"3")
    assert log.fetch_to(4)[2:] == [(3, b"3")]
    assert offsets(cluster, partition) == (0, 4)


def test_end_is_reported_again_after_another_assignment(
    cluster: Cluster, partition: Partition, reader: Reader, log: Log
) -> None:
    for value in (b"0", b"1"):
        cluster.write(partition, value)
    reader.assign({partition: 0})
    log.fetch_to(2)
    reader.unassign([partition])
    reader.assign({partition: 1})
    log.ends.clear()
    assert log.fetch_to(2) == [(0, b"0"), (1, b"1"), (1, b"1")]


def test_open_transaction_hides_what_follows_it_until_it_is_over(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, log: Log
) -> None:
    """The last stable offset is the end, but for the brokers' own answer."""
    cluster.write(partition, b"0")
    producer = connect()
    producer.begin()
    send(producer, partition, b"aborted")
    cluster.flush(producer)
    cluster.write(partition, b"2")
    reader.assign({partition: 0})
    assert log.fetch_to(1) == [(0, b"0")]
    assert offsets(cluster, partition) == (0, 1)
    assert reader.known_end(partition) == 3
    assert cluster.clients.brokers.high_watermarks([partition]) == {partition: 3}
    connect()
    assert log.fetch_to(4) == [(0, b"0"), (2, b"2")]


def test_end_moves_behind_the_marker_of_what_was_aborted(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, log: Log
) -> None:
    producer = connect()
    producer.begin()
    send(producer, partition, b"aborted")
    cluster.flush(producer)
    reader.assign({partition: 0})
    log.fetch_to(0)
    connect()
    assert log.fetch_to(2) == []


def test_fenced_producer_commits_nothing(
    partition: Partition, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    zombie = connect()
    zombie.begin()
    send(zombie, partition, b"zombie")
    owner = connect()
    with pytest.raises(FencedError):
        zombie.commit({partition: Committed(7)}, metadata)
    owner.begin()
    send(owner, partition, b"owner")
    owner.commit({}, metadata)
    reader.assign({partition: 0})
    log.fetch_for_a_while()
    assert [value for _, value in log.records] == [b"owner"]
    assert reader.committed([partition], 30) == {}


def test_producer_that_was_fenced_between_transactions_commits_nothing(
    partition: Partition, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    zombie = connect()
    zombie.begin()
    send(zombie, partition, b"0")
    zombie.commit({}, metadata)
    connect()
    with pytest.raises(FencedError):
        use(zombie, partition, metadata)
    reader.assign({partition: 0})
    assert log.fetch_to(2) == [(0, b"0")]


def use(producer: TransactionalProducer, partition: Partition, metadata: Any) -> None:
    producer.begin()
    send(producer, partition, b"more")
    producer.commit({}, metadata)


def test_offsets_are_committed_with_the_transaction_only(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, metadata: Any
) -> None:
    """A request for them gets no answer while the transaction is open."""
    producer = connect()
    assert reader.committed([partition], 30) == {}
    producer.begin()
    position = Committed(5, time_ms=1_732_280_000_000)
    producer.commit({partition: position}, metadata)
    assert reader.committed([partition], 30) == {partition: position}
    producer.begin()
    cluster.add_offsets(producer, {partition: Committed(9)}, metadata)
    with pytest.raises(TransactionFailedError):
        reader.committed([partition], 1)
    connect()
    assert reader.committed([partition], 30) == {partition: position}


def test_transaction_with_nothing_in_it_takes_no_offset(
    partition: Partition, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    producer = connect()
    producer.begin()
    assert producer.commit({}, metadata) == {}
    producer.begin()
    send(producer, partition, b"0")
    producer.commit({}, metadata)
    reader.assign({partition: 0})
    assert log.fetch_to(2) == [(0, b"0")]


def test_transaction_that_outlives_its_timeout_is_aborted_and_its_producer_fenced(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    producer = connect()
    producer.begin()
    send(producer, partition, b"late")
    cluster.flush(producer)
    deadline_s = cluster.clock.monotonic() + 40
    while offsets(cluster, partition) != (0, 2):
        assert cluster.clock.monotonic() < deadline_s
        cluster.clock.sleep(0.2)
    with pytest.raises(FencedError):
        producer.commit({}, metadata)
    reader.assign({partition: 0})
    assert log.fetch_to(2) == []


def test_transactions_have_an_order(
    cluster: Cluster, partition: Partition, connect: Any, metadata: Any
) -> None:
    with pytest.raises(TransactionFailedError):
        cluster.clients.producer("not initialized", {}).begin()
    with pytest.raises(TransactionFailedError):
        connect().commit({}, metadata)
    producer = connect()
    producer.begin()
    with pytest.raises(TransactionFailedError):
        producer.begin()


def test_record_that_the_topic_does_not_take_fails_the_transaction(
    cluster: Cluster, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    small = cluster.make_topic(max_message_bytes="2000"), 0
    producer = connect()
    producer.begin()
    with pytest.raises(TransactionFailedError):
        fill(producer, small, b"0" * 3000, metadata)
    reader.assign({small: 0})
    log.fetch_for_a_while()
    assert log.records == []


def fill(
    producer: TransactionalProducer, partition: Partition, value: bytes, metadata: Any
) -> None:
    send(producer, partition, value)
    producer.commit({}, metadata)


def test_state_that_is_too_large_is_refused_at_once(partition: Partition, connect: Any) -> None:
    producer = connect()
    producer.begin()
    with pytest.raises(NonRetriableError, match=r"larger than|too large"):
        producer.send_state(*partition, {b"k": b"0" * _LIMIT})


def test_commit_says_where_the_state_ends_and_changes_are_read_by_key(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, metadata: Any
) -> None:
    producer = connect()
    producer.begin()
    producer.send_state(*partition, {b"a": b"1", b"b": b"2", b"c": None})
    assert producer.commit({}, metadata) == {partition[0]: 3}
    producer.begin()
    producer.send_state(*partition, {b"a": b"3"})
    assert producer.commit({}, metadata) == {partition[0]: 5}
    reader.assign({partition: 0})
    last: dict[bytes, bytes | None] = {}
    records = 0
    deadline_s = cluster.clock.monotonic() + _WAIT_S
    while reader.positions[partition] < 6 and cluster.clock.monotonic() < deadline_s:
        changes = reader.fetch_changes(100, 0.05)
        last |= changes.last
        records += changes.records
    assert (last, records) == ({b"a": b"3", b"b": b"2", b"c": None}, 4)
    assert reader.positions == {partition: 6}


@pytest.mark.parametrize("offset", [1, 9])
def test_offset_that_is_not_there_is_an_error_and_reported_once(
    cluster: Cluster, partition: Partition, reader: Reader, log: Log, offset: int
) -> None:
    for number in range(4):
        cluster.write(partition, b"%d" % number)
    cluster.delete_before(partition, 2)
    assert offsets(cluster, partition) == (2, 4)
    reader.assign({partition: offset})
    assert "the offset to continue from is not in the topic" in log.fetch_error()
    log.fetch_for_a_while()
    assert (log.records, log.ends, len(log.errors)) == ([], [], 1)
    reader.unassign([partition])
    reader.assign({partition: 2})
    assert log.fetch_to(4) == [(2, b"2"), (3, b"3")]


def test_pause_ends_with_the_assignment(
    cluster: Cluster, partition: Partition, reader: Reader, log: Log
) -> None:
    cluster.write(partition, b"0")
    reader.assign({partition: 0})
    log.fetch_to(1)
    reader.pause([partition])
    assert reader.paused == {partition}
    cluster.write(partition, b"1")
    log.fetch_for_a_while()
    assert log.records == [(0, b"0")]
    reader.unassign([partition])
    assert reader.paused == frozenset()
    reader.assign({partition: 1})
    assert log.fetch_to(2) == [(0, b"0"), (1, b"1")]


def test_end_is_known_after_the_first_fetch_and_never_wrong_before(
    cluster: Cluster, partition: Partition, reader: Reader, log: Log
) -> None:
    """librdkafka may have fetched before anybody asks it for records."""
    cluster.write(partition, b"0")
    reader.assign({partition: 0})
    assert reader.known_end(partition) in (-1001, 1)
    log.fetch_to(1)
    assert reader.known_end(partition) == 1


def test_keys_decide_the_partition_and_no_time_is_zero(
    cluster: Cluster, connect: Any, reader: Reader, metadata: Any
) -> None:
    topic = cluster.make_topic(partitions=3)
    keys = [b"a", b"ab", b"abc", b"abcd", b"\xff" * 9]
    producer = connect()
    producer.begin()
    partitions = [-1, -1, -1, -1, -1, 2]
    producer.send_columns(topic, [*keys, None], [b"v"] * 6, [0, 1, 2, 3, 4, 5], None, partitions)
    producer.commit({}, metadata)
    reader.assign({(topic, number): 0 for number in range(3)})
    found: dict[bytes | None, tuple[int, int]] = {}
    deadline_s = cluster.clock.monotonic() + _WAIT_S
    while len(found) < 6 and cluster.clock.monotonic() < deadline_s:
        for batch in reader.fetch(100, 0.05).batches:
            columns = zip(batch.keys, batch.timestamps, strict=True)
            found |= {key: (batch.partition, at) for key, at in columns}
    times = (1, 1, 2, 3, 4)
    expected: dict[bytes | None, tuple[int, int]] = {None: (2, 5)}
    expected |= {key: (default_partition(key, 3), at) for key, at in zip(keys, times, strict=True)}
    assert found == expected


def test_records_for_partitions_that_nobody_reads_are_not_committed(
    cluster: Cluster, reader: Reader, metadata: Any
) -> None:
    """Somebody adds partitions to an arc, and the producer has learned of them."""
    topic = cluster.make_topic(partitions=2)
    transactional_id = f"id_{os.getpid()}_{next(_ids)}"

    def connect() -> TransactionalProducer:
        return cluster.clients.producer(transactional_id, {topic: _LIMIT}, {topic: 2})

    keys = [b"%d" % number for number in range(20)]
    records = [(topic, key, b"first", -1, 1, None) for key in keys]
    with closing(connect()) as producer:
        producer.fence(30)
        for _ in range(2):
            producer.begin()
            producer.send_records(records)
            producer.commit({}, metadata)
        cluster.add_partitions(topic, 4)
        deadline_s = cluster.clock.monotonic() + _WAIT_S
        while producer.num_partitions(topic) < 4:
            assert cluster.clock.monotonic() < deadline_s
        producer.begin()
        producer.send_records([(topic, key, b"lost", -1, 1, None) for key in keys])
        with pytest.raises(NonRetriableError, match=f"topic {topic} has other partitions than"):
            producer.commit({}, metadata)
    with (
        closing(connect()) as producer,
        pytest.raises(NonRetriableError, match=f"topic {topic} has other partitions than"),
    ):
        producer.fence(30)
    log, places = Log(cluster, reader), [(topic, number) for number in range(4)]
    reader.assign(dict.fromkeys(places, 0))
    log._fetch_until(lambda: len(log.ends) >= len(places), _WAIT_S)
    assert sorted(value or b"" for _, value in log.records) == [b"first"] * 40
    ends = cluster.clients.brokers.stable_ends(places)
    found = cluster.clients.brokers.high_watermarks(places)
    assert ends == found, "a transaction is open"


def test_answers_about_topics(cluster: Cluster, connect: Any) -> None:
    brokers = cluster.clients.brokers
    topic = cluster.make_topic(partitions=2, max_message_bytes="5000")
    other = cluster.make_topic()
    assert brokers.partition_counts([topic, "missing"]) == {topic: 2}
    assert brokers.topic_limits([topic])[topic].size_bytes == 5000
    ids = brokers.topic_ids([topic, other])
    assert ids.keys() == {topic, other}
    assert len({*ids.values()}) == 2
    assert brokers.topic_ids([topic]) == {topic: ids[topic]}
    assert brokers.existing_topics([topic, other])[topic] == ExistingTopic(ids[topic], 2)
    for timestamp in (10, 20, 30):
        cluster.write((topic, 1), b"v", timestamp)
    assert brokers.offsets_at([(topic, 1)], 15) == {(topic, 1): 1}
    assert brokers.offsets_at([(topic, 1)], 31) == {(topic, 1): None}
    assert connect().num_partitions(topic) == 2


def test_marker_counts_as_what_was_written_at_its_time(
    cluster: Cluster, partition: Partition, connect: Any, reader: Reader, log: Log, metadata: Any
) -> None:
    producer = connect()
    producer.begin()
    send(producer, partition, b"of 1970")
    producer.commit({}, metadata)
    reader.assign({partition: 0})
    log.fetch_to(2)
    assert cluster.clients.brokers.offsets_at([partition], 1_000_000) == {partition: 1}


def test_producer_knows_the_limits_of_topics(
    cluster: Cluster, partition: Partition, connect: Any
) -> None:
    producer = connect()
    assert producer.size_limit(partition[0]) == _LIMIT
    with pytest.raises(KeyError):
        producer.size_limit("another")
    with pytest.raises(NonRetriableError):
        producer.learn_size_limit("another", _LIMIT - 1)
    producer.learn_size_limit("another", 2 * _LIMIT)
    assert producer.size_limit("another") == _LIMIT

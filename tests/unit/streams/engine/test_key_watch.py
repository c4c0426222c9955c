"""Keys that do not meet those of other topics: found from a sample, and told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from kafka_pipeline import Processor, Serde, StreamsBuilder, TopologyBuilder, serdes, windows
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.streams.dsl.stream import Stream
from kafka_pipeline.streams.engine.key_watch import FIRST_RECORDS, INTERVAL, MOST_KEYS, KeyWatch
from kafka_pipeline.streams.partitioning import (
    PARTITIONERS,
    crc32_partition,
    default_partition,
    fnv1a_partition,
)
from kafka_pipeline.streams.stores import key_value
from kafka_pipeline.testing import TopologyTestDriver

Partitioner = Callable[[bytes, int], int]
PARTITIONS = 6
KEYS = [f"customer-{number}".encode() for number in range(40)]


def random(key: bytes, partitions: int) -> int:
    """Choose a partition as nobody else does."""
    return sum(key) * 7 // 5 % partitions


def joined(
    key_serde: Serde[Any] = serdes.string, right_serde: Serde[Any] | None = None
) -> StreamsBuilder:
    builder = StreamsBuilder(key_serde=key_serde, value_serde=serdes.json)
    customers = builder.table("customers", name="Customers", key_serde=right_serde)
    orders = builder.stream("orders", name="Orders")
    orders.join(customers, lambda order, customer: order, name="Joined").to("out")
    return builder


def watch_of(
    builder: StreamsBuilder | TopologyBuilder, topics: Sequence[str], partitions: int, number: int
) -> KeyWatch:
    topology = builder.build()
    (group,) = [each for each in topology.groups if set(topics) <= {*each.in_topics}]
    return KeyWatch(group, [(topic, number) for topic in topics], dict.fromkeys(topics, partitions))


def batch(topic: str, partition: int, keys: Sequence[bytes | None]) -> RecordBatch:
    size = len(keys)
    return RecordBatch(topic, partition, keys, [b"{}"] * size, [0] * size, range(size))


def of_partition(keys: Iterable[bytes], by: Partitioner, number: int) -> list[bytes]:
    return [key for key in keys if by(key, PARTITIONS) == number]


def warnings(
    orders: Partitioner, customers: Partitioner, keys: Sequence[bytes] = KEYS
) -> list[KeyWarning]:
    """Return what all tasks find."""
    found: list[KeyWarning] = []
    for number in range(PARTITIONS):
        watch = watch_of(joined(), ["orders", "customers"], PARTITIONS, number)
        found += watch.look(batch("orders", number, of_partition(keys, orders, number)))
        found += watch.look(batch("customers", number, of_partition(keys, customers, number)))
        assert watch.warnings == tuple(found[len(found) - len(watch.warnings) :])
    return found


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partitioners_are_those_of_librdkafka(name: str) -> None:
    """Compared with librdkafka itself, on its mock cluster."""
    keys = [*KEYS, b"\xff\x00abc", "Müller".encode(), b"x", b"\x80" * 33]
    found: dict[bytes, int] = {}

    def delivered(error: object, message: Message) -> None:
        found[message.key() or b""] = message.partition() or 0

    producer = Producer(
        {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "partitioner": name}
    )
    for key in keys:
        producer.produce("topic", key=key, on_delivery=delivered)
    assert producer.flush(20) == 0
    count = len(producer.list_topics("topic", timeout=20).topics["topic"].partitions)
    assert count > 1
    assert found == {key: PARTITIONERS[name](key, count) for key in keys}


@pytest.mark.parametrize(
    ("by", "name"),
    [(crc32_partition, "consistent_random"), (fnv1a_partition, "fnv1a_random"), (random, "")],
)
def test_a_topic_of_another_partitioner_is_told_with_the_one_that_fits(
    by: Partitioner, name: str
) -> None:
    found = warnings(by, default_partition)
    assert set(found) == {
        KeyWarning("orders", KeyProblem.PARTITIONS, "Joined", ("customers",), name)
    }
    text = found[0].text
    assert "orders has keys in other partitions than murmur2_random" in text
    assert name in text
    assert "repartition()" in text
    assert "partitioner=murmur2_random" in text


@pytest.mark.parametrize("by", [default_partition, crc32_partition, fnv1a_partition, random])
def test_topics_that_were_partitioned_in_the_same_way_are_not_told(by: Partitioner) -> None:
    assert warnings(by, by) == []


def test_all_topics_of_other_partitioners_are_told() -> None:
    names = {(each.topic, each.found) for each in warnings(crc32_partition, fnv1a_partition)}
    assert names == {("orders", "consistent_random"), ("customers", "fnv1a_random")}


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_told_without_other_partitions(count: int) -> None:
    watch = watch_of(joined(), ["orders", "customers"], count, 0)
    assert not watch.look(batch("orders", 0, KEYS))
    assert not watch.look(batch("customers", 0, KEYS))


def test_a_topic_without_a_partner_is_not_told() -> None:
    builder = StreamsBuilder(key_serde=serdes.json, value_serde=serdes.json)
    builder.stream("orders", name="Orders").group_by_key().count(name="Counts")
    watch = watch_of(builder, ["orders"], PARTITIONS, 0)
    assert not watch.look(batch("orders", 0, [*KEYS, b'"M\\u00fcller"']))


def test_single_records_from_another_hand_are_not_told() -> None:
    keys = [f"k{number}".encode() for number in range(1000)]
    own = of_partition(keys, default_partition, 0)[:60]
    foreign = of_partition(keys, default_partition, 1)[:5]
    watch = watch_of(joined(), ["orders", "customers"], PARTITIONS, 0)
    assert not watch.look(batch("customers", 0, own))
    assert not watch.look(batch("orders", 0, [*own, *foreign]))


def test_one_hot_key_and_keys_that_decide_nothing_tell_nothing() -> None:
    (key, *_) = of_partition(KEYS, default_partition, 1)
    watch = watch_of(joined(), ["orders", "customers"], PARTITIONS, 0)
    assert not watch.look(batch("customers", 0, of_partition(KEYS, default_partition, 0)))
    assert not watch.look(batch("orders", 0, [key, None, b"", b"k" * 5000, b"m" * 5000] * 100))


def test_a_sample_is_taken_of_first_records_and_then_one_of_a_thousand() -> None:
    looked_at: list[bytes] = []

    def read(data: bytes) -> bytes:
        looked_at.append(data)
        return data

    serde = Serde("seen", lambda key: key, read)
    watch = watch_of(joined(serde), ["orders", "customers"], 1, 0)
    keys = [b"%d" % number for number in range(5500)]
    for start in range(0, len(keys), 70):
        watch.look(batch("orders", 0, keys[start : start + 70]))
    expected = [*range(FIRST_RECORDS), *range(INTERVAL, len(keys), INTERVAL)]
    assert looked_at == [keys[number] for number in expected]


def test_a_producer_that_changes_later_is_told() -> None:
    many = [f"k{number}".encode() for number in range(4000)]
    ours = of_partition(many, default_partition, 2)
    theirs = of_partition(many, crc32_partition, 2)
    watch = watch_of(joined(), ["orders", "customers"], PARTITIONS, 2)
    watch.look(batch("customers", 2, ours))
    assert not watch.look(batch("orders", 2, ours[:FIRST_RECORDS]))
    found: list[KeyWarning] = []
    for key in theirs[: 2 * MOST_KEYS]:
        found += watch.look(batch("orders", 2, [key] * INTERVAL))
    assert [(each.topic, each.found) for each in found] == [("orders", "")], "two are mixed"


ESCAPED, PLAIN = b'"M\\u00fcller"', '"Müller"'.encode()


@pytest.mark.parametrize(
    ("serde", "other", "key", "is_told"),
    [
        (serdes.json, serdes.json, ESCAPED, True),
        (serdes.json, serdes.json, PLAIN, False),
        (serdes.json, serdes.json, b'{"a": 1}', True),
        (serdes.json, serdes.json, b"not json", False),
        (serdes.integer, serdes.integer, b"+7", True),
        (serdes.uuid, serdes.uuid, b"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6", True),
        (serdes.string, serdes.json, b"abc", True),
        (serdes.bytes, serdes.bytes, b"abc", False),
    ],
)
def test_keys_with_other_bytes_than_the_serde_writes_are_told_once(
    serde: Serde[Any], other: Serde[Any], key: bytes, is_told: bool
) -> None:
    watch = watch_of(joined(serde, other), ["orders", "customers"], PARTITIONS, 0)
    found = [*watch.look(batch("orders", 0, [key])), *watch.look(batch("orders", 0, [key + key]))]
    assert [each.problem for each in found] == [KeyProblem.BYTES] * is_told
    for each in found:
        assert f"orders has keys with other bytes than the serde {other.name}" in each.text
        assert "customers" in each.text


class Panic(BaseException):
    """What an extension may raise."""


def test_a_serde_that_raises_anything_is_left_to_the_record() -> None:
    def read(data: bytes) -> Any:
        raise Panic

    watch = watch_of(joined(Serde("bad", lambda key: b"", read)), ["orders", "customers"], 2, 0)
    assert not watch.look(batch("orders", 0, [b"k"]))


def shared(builder: TopologyBuilder) -> TopologyBuilder:
    builder.add_source("A", "orders").add_source("B", "customers")
    builder.add_processor("P", Nothing, ["A", "B"])
    return builder.add_state_store(key_value("s", serdes.bytes, serdes.bytes), "P")


class Nothing(Processor):
    """Does nothing."""

    def process(self, record: Any) -> None:
        """Do nothing."""


def of_streams(step: Callable[[Stream, Stream], Any]) -> StreamsBuilder:
    builder = StreamsBuilder(
        key_serde=serdes.string, value_serde=serdes.json, allow_generated_names=True
    )
    step(builder.stream("orders"), builder.stream("customers"))
    return builder


def first(left: Any, right: Any) -> Any:
    return left


def add(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


CO_PARTITIONED: dict[str, Callable[[], StreamsBuilder | TopologyBuilder]] = {
    "streams": lambda: of_streams(
        lambda a, b: a.join(b, max, windows=windows.join(before_ms=1, after_ms=1, grace_ms=0))
    ),
    "tables": lambda: of_streams(lambda a, b: a.to_table().outer_join(b.to_table(), first)),
    "merged": lambda: of_streams(lambda a, b: a.merge(b).group_by_key().count()),
    "cogroup": lambda: of_streams(
        lambda a, b: a.group_by_key().cogroup(add).cogroup(b.group_by_key(), add).aggregate(int)
    ),
    "a shared store": lambda: shared(TopologyBuilder()),
}


@pytest.mark.parametrize("step", CO_PARTITIONED)
def test_all_steps_in_which_topics_meet_by_key_are_watched(step: str) -> None:
    watch = watch_of(CO_PARTITIONED[step](), ["orders", "customers"], PARTITIONS, 0)
    watch.look(batch("orders", 0, of_partition(KEYS, crc32_partition, 0)))
    (found,) = watch.look(batch("customers", 0, of_partition(KEYS, default_partition, 0)))
    assert (found.topic, found.found) == ("orders", "consistent_random")


def test_the_right_table_of_a_foreign_key_join_is_watched_and_its_answers_are_not() -> None:
    builder = StreamsBuilder(key_serde=serdes.json, value_serde=serdes.json)
    left, right = builder.table("left", name="Left"), builder.table("right", name="Right")
    left.join(right, lambda a, b: a, foreign_key=lambda value: value, name="Joined")
    sent = "Joined-subscriptions-repartition"
    watch = watch_of(builder, ["right", sent], PARTITIONS, 0)
    watch.look(batch(sent, 0, of_partition(KEYS, default_partition, 0)))
    (found,) = watch.look(batch("right", 0, of_partition(KEYS, crc32_partition, 0)))
    assert (found.topic, found.others) == ("right", (sent,))
    # Answers go to the partition of the row, whatever partitioner has chosen that.
    answers = "Joined-answers-repartition"
    watch = watch_of(builder, ["left", answers], PARTITIONS, 0)
    watch.look(batch(answers, 0, of_partition(KEYS, crc32_partition, 0)))
    assert not watch.look(batch("left", 0, of_partition(KEYS, default_partition, 0)))


def test_test_drivers_show_keys_with_other_bytes() -> None:
    with TopologyTestDriver(
        joined(serdes.json), partitions={"orders": 6, "customers": 6}
    ) as driver:
        customers = driver.create_input_topic("customers", serdes.json, serdes.json)
        orders = driver.create_input_topic("orders", serdes.bytes, serdes.json)
        customers.pipe_input("Müller", 1)
        orders.pipe_input(PLAIN, 1)
        assert driver.key_warnings == []
        orders.pipe_input(ESCAPED, 2)
        orders.pipe_input(ESCAPED, 3)
        (text,) = driver.key_warnings
    assert text.startswith("orders has keys with other bytes than the serde json would write")

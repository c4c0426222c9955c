"""A bare consume-produce loop over librdkafka, without an engine: the baseline for engines.

It does what a careful hand-written confluent-kafka script does (batched consume, keys, timestamps,
murmur2 partitions), but has no state and no supervision. Without transactions, it is at-least-once
at best. With them, it is exactly-once, and an upper limit for any engine that commits as often.
Arguments: `at-least-once` or `transactional`, bootstrap servers, group, source, sink, partition. It
ends on SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

BATCH = 10_000
COMMIT_INTERVAL_S = 0.1
REQUEST_TIMEOUT_S = 30


class Stopped(Exception):
    """This process was asked to end."""


def consumer_of(servers: str, group: str) -> Consumer:
    """Return a consumer of committed records whose fetches wait only milliseconds."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )


def producer_of(servers: str, **settings: Any) -> Producer:
    """Return a producer for large batches."""
    return Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def produce(producer: Producer, sink: str, messages: list[Message]) -> None:
    """Hand records to the producer unchanged; waits while the send queue is full."""
    for message in messages:
        while True:
            try:
                producer.produce(
                    sink, message.value(), message.key(), timestamp=message.timestamp()[1]
                )
                break
            except BufferError:
                producer.poll(0.01)
    producer.poll(0)


def copy(consumer: Consumer, producer: Producer, sink: str) -> None:
    """Copy records forever, and commit nothing."""
    while True:
        first = consumer.poll(1)
        if first is not None:
            produce(producer, sink, [first, *consumer.consume(BATCH - 1, 0)])


def copy_in_transactions(
    consumer: Consumer, producer: Producer, source: str, partition: int, sink: str
) -> None:
    """Copy records forever, in one transaction per commit interval."""
    producer.init_transactions(REQUEST_TIMEOUT_S)
    group = consumer.consumer_group_metadata()
    while True:
        first = consumer.poll(1)
        if first is None:
            continue
        producer.begin_transaction()
        deadline_s = time.monotonic() + COMMIT_INTERVAL_S
        while first is not None:
            messages = [first, *consumer.consume(BATCH - 1, 0)]
            produce(producer, sink, messages)
            position = TopicPartition(source, partition, _next_offset(messages[-1]))
            left_s = deadline_s - time.monotonic()
            first = consumer.poll(left_s) if left_s > 0 else None
        producer.send_offsets_to_transaction([position], group, REQUEST_TIMEOUT_S)
        producer.commit_transaction(REQUEST_TIMEOUT_S)


def _next_offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset + 1


def stop(_number: int, _frame: object) -> None:
    """End the loop."""
    raise Stopped


def main() -> None:
    """Copy one partition until SIGTERM arrives."""
    mode, servers, group, source, sink, partition = sys.argv[1:]
    signal.signal(signal.SIGTERM, stop)
    consumer = consumer_of(servers, group)
    consumer.assign([TopicPartition(source, int(partition), 0)])
    try:
        if mode == "transactional":
            producer = producer_of(
                servers,
                transactional_id=f"{group}_{partition}",
                retry_backoff_ms=5,
            )
            copy_in_transactions(consumer, producer, source, int(partition), sink)
        else:
            producer = producer_of(servers)
            copy(consumer, producer, sink)
    except Stopped:
        producer.flush(REQUEST_TIMEOUT_S)
    finally:
        consumer.close()


if __name__ == "__main__":
    main()

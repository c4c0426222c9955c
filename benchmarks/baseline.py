"""The yardstick: a bare consume-produce loop in Python, at-least-once, without the engine.

It does what a careful hand-written script does with confluent-kafka (batched consume, keys,
timestamps, murmur2 partitions), but no transactions, no state, no supervision. A figure of the
engine divided by this one's, of the same run, tells what the engine's guarantees cost.
"""

from __future__ import annotations

import multiprocessing
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

BATCH = 10_000


def copy_partition(servers: str, source: str, sink: str, partition: int, records: int) -> None:
    """Copy that many records of one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "baseline",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 5,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
        }
    )
    consumer.assign([TopicPartition(source, partition, 0)])
    seen = 0
    while seen < records:
        first = consumer.poll(1)
        if first is None:
            continue
        messages = [first, *consumer.consume(BATCH, 0)]
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
        seen += len(messages)
    producer.flush()
    consumer.close()


def rate(servers: str, source: str, sink: str, records_of: dict[int, int]) -> float:
    """Return records per second of one process per partition, all at once."""
    # Not by fork: this process has Kafka clients, whose threads and locks would not survive it.
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=copy_partition, args=(servers, source, sink, number, count))
        for number, count in records_of.items()
    ]
    started = time.monotonic()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit(f"the baseline failed with exit code {process.exitcode}")
    return sum(records_of.values()) / (time.monotonic() - started)

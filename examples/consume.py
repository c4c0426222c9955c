"""Prints how often each key came, from the sink topic of the sample pipeline.

    python examples/consume.py [BOOTSTRAP_SERVERS]

Reads the records committed so far, from the first to the last, and ends.
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

SINK_TOPIC = "sink_topic"


def main():
    consumer = Consumer(
        {
            "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092",
            "group.id": "example",
            "enable.auto.commit": False,
            # Exactly-once depends on this: `read_uncommitted` would also show aborted records.
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    topic = consumer.list_topics(SINK_TOPIC, timeout=10).topics[SINK_TOPIC]
    if topic.error is not None:
        sys.exit(f"{SINK_TOPIC}: {topic.error.str()}")
    unread = set(topic.partitions)
    consumer.assign([TopicPartition(SINK_TOPIC, number, OFFSET_BEGINNING) for number in unread])
    counts = {}
    while unread:
        message = consumer.poll(10)
        if message is None:
            sys.exit("nothing came for 10 s")
        if message.error() is None:
            counts[message.key().decode()] = int(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()
    for key, count in sorted(counts.items()):
        print(f"{count:6} {key}")


if __name__ == "__main__":
    main()

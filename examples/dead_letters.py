"""Prints the dead letters of a processor, and writes them to another topic if you name one.

    python examples/dead_letters.py TOPIC [TO_TOPIC]

TOPIC is such as Adder_dead_letter_job_1. BOOTSTRAP_SERVERS in the environment says where Kafka is;
the default is 127.0.0.1:9092. Reads what has been committed so far, and ends.
"""

import os
import sys

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "127.0.0.1:9092")
ERRORS = "__streams.errors."


def read_all(topic):
    """Yield all committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": "example",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found = consumer.list_topics(topic, timeout=10).topics[topic]
    if found.error is not None:
        sys.exit(f"{topic}: {found.error.str()}")
    unread = set(found.partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
    while unread:
        message = consumer.poll(10)
        if message is None:
            sys.exit("nothing came for 10 s")
        if message.error() is None:
            yield message
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()


def main():
    topic, target = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    producer = Producer(
        {
            "bootstrap.servers": SERVERS,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
        }
    )
    # All of them first: records that are written again may become dead letters again.
    letters = list(read_all(topic))
    for letter in letters:
        headers = letter.headers() or []
        said = {
            name.removeprefix(ERRORS): value.decode()
            for name, value in headers
            if name.startswith(ERRORS)
        }
        place = f"{said['topic']}[{said['partition']}]@{said['offset']}"
        print(f"{place} key={letter.key()} value={letter.value()}: {said['message']}")
        if target is not None:
            kept = [(name, value) for name, value in headers if not name.startswith(ERRORS)]
            producer.produce(target, key=letter.key(), value=letter.value(), headers=kept)
    if producer.flush(30):
        sys.exit("Kafka has not taken all records within 30 s")
    if target is not None:
        print(f"wrote {len(letters)} records to {target}")


if __name__ == "__main__":
    main()

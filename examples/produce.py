"""Writes 1,000 records to the source topic of the sample pipeline.

    python examples/produce.py [BOOTSTRAP_SERVERS]

Keys are fruits. Values are whole numbers, except for ten that are not and become dead letters.
"""

import sys

from confluent_kafka import Producer

SOURCE_TOPIC = "source_topic"
FRUITS = ("apple", "lemon", "orange", "cherry")


def main():
    producer = Producer(
        {
            "bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092",
            # Records that are sent again after a broken connection are not written twice.
            "enable.idempotence": True,
            # Keys go to the same partitions as with Java clients, and with this engine.
            "partitioner": "murmur2_random",
        }
    )
    failures = []

    def on_delivery(error, _message):
        # An exception would be lost here: librdkafka calls this.
        if error is not None:
            failures.append(error)

    for number in range(1000):
        value = "not a number" if number % 100 == 99 else str(number)
        producer.produce(SOURCE_TOPIC, key=FRUITS[number % 4], value=value, on_delivery=on_delivery)
    unsent = producer.flush(30)
    if failures:
        sys.exit(
            f"Kafka does not take the records: {failures[0].str()}. "
            f"Is the JobManager running? It creates the topic {SOURCE_TOPIC}."
        )
    if unsent:
        sys.exit("Kafka has not taken all records within 30 s")
    print(f"wrote 1,000 records to {SOURCE_TOPIC}")


if __name__ == "__main__":
    main()

"""Drops many transactional producers just when librdkafka registers their partitions.

    python -m tests.dropped_producers FOLDER BOOTSTRAP_SERVERS COUNT

A process of its own, as an assertion of librdkafka would end it.
"""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path

from kafka_pipeline.common.kafka.task_producer import TaskProducer
from tests.tasks import Job

_THREADS = 16
_TIMEOUT_S = 60.0


def drop(job: Job, transactional_id: str) -> None:
    """Begin a transaction, and close the producer at once."""
    topic = job.config.sink_topic
    producer = TaskProducer(job.config, transactional_id, {topic: 1_000_000})
    try:
        producer.fence(_TIMEOUT_S)
        producer.begin()
        producer.send_records([(topic, b"k", b"v", number % 2, 1, None) for number in range(8)])
    finally:
        producer.close()


def main(folder: str, bootstrap_servers: str, count: str) -> None:
    """Drop `count` producers, some at a time; their transactional ids are used again and again."""
    job = Job(Path(folder), bootstrap_servers)
    numbers = itertools.count()

    def work(worker: int) -> None:
        while next(numbers) < int(count):
            drop(job, f"{job.config.job_name}_{worker}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for thread in threading.enumerate():
        if thread.name == "close":
            thread.join(_TIMEOUT_S)
    job.close()


if __name__ == "__main__":
    main(*sys.argv[1:])

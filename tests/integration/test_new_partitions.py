"""A source gets more partitions while a job reads it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.jobmanager.topic_watch import LOOK_INTERVAL_S
from tests.engine import Engine, all_run, engine

pytestmark = [pytest.mark.integration, pytest.mark.long]

PIPELINE = """
sources: {{plain: plain_{name}, counted: counted_{name}}}
processors:
- {{id: Forwarder, type: forward, from: [plain], to: [sink]}}
- {{id: Counter, type: count, from: [counted], to: [sink]}}
"""


def grow(job: Engine, topic: str, count: int) -> None:
    client = AdminClient({"bootstrap.servers": job.config.bootstrap_servers})
    client.create_partitions([NewPartitions(topic, count)])[topic].result(10)


def send(job: Engine, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": job.config.bootstrap_servers})
    for partition in range(partitions):
        producer.produce(topic, str(partition), partition=partition)
    assert producer.flush(10) == 0


def tasks_of(status: ClusterStatus, processor: str) -> list[int]:
    return sorted(t.task.partition for t in status.tasks if t.task.processor == processor)


def test_tasks_without_state_take_them_up_and_others_are_a_finding(
    tmp_path: Path, bootstrap_servers: str
) -> None:
    name = f"new_partitions_{os.getpid()}"
    with engine(
        tmp_path, bootstrap_servers, name, PIPELINE.format(name=name), parallelism=1
    ) as job:
        job.start_job_manager()
        job.start_task_manager(0)
        job.wait_until(all_run([0]))
        for topic in ("plain", "counted"):
            grow(job, f"{topic}_{name}", 3)
        send(job, f"plain_{name}", 3)
        begin_s = time.monotonic()
        status = job.wait_until(
            lambda status: (
                status.job_manager is not None
                and len(status.job_manager.findings) == 1
                and tasks_of(status, "Forwarder") == [0, 1, 2]
                and status.all_run
            )
        )
        assert time.monotonic() - begin_s < LOOK_INTERVAL_S + 30
        assert status.job_manager is not None
        assert "Counter reads 1" in status.job_manager.findings[0]
        assert tasks_of(status, "Counter") == [0]
        job.wait_until_done({job.config.sink_topic: 3})
        assert {value for _, value in job.read(job.config.sink_topic)} == {b"0", b"1", b"2"}

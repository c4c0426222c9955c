"""`pipeline transactions` on a real Kafka, with transactions that a lost task has left open."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_pipeline.common.cluster.cluster_status import Presence
from kafka_pipeline.common.tasks import TaskId
from tests.engine import Engine, engine
from tests.in_process import run_pipeline

pytestmark = [pytest.mark.integration]

_job_numbers = itertools.count()

PIPELINE = "- {id: Counter, type: count, to: [sink]}\n"
TIMEOUT_MS = 600_000


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Engine]:
    """A job whose JobManager made the topics; no TaskManager runs."""
    name = f"transactions_{os.getpid()}_{next(_job_numbers)}"
    with engine(tmp_path, bootstrap_servers, name, PIPELINE, tm_number=1) as made:
        made.start_job_manager()
        made.wait_until(lambda status: status.job_manager.presence is Presence.UP)
        yield made


@pytest.fixture
def producers(bootstrap_servers: str) -> Iterator[dict[str, Producer]]:
    """Producers by their ids, kept until the end of the test, so that none aborts its own."""
    made: dict[str, Producer] = {}
    yield made
    for producer in made.values():
        producer.purge()


def leave_open(producers: dict[str, Producer], job: Engine, id_: str, *topics: str) -> None:
    """Write to partition 0 of topics in a transaction that nobody ends for ten minutes."""
    producer = producers[id_] = Producer(
        {
            "bootstrap.servers": job.config.bootstrap_servers,
            "transactional.id": id_,
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    began_ms = int(time.time() * 1000) - 3_600_000
    for topic in topics:
        # A time of the past, as results may have.
        producer.produce(topic, b"1", b"key", partition=0, timestamp=began_ms)
    assert producer.flush(30) == 0


def transactions(job: Engine, command: str, *options: str, code: int = 0) -> str:
    return run_pipeline("transactions", command, str(job.config_file), *options, code=code)


def listed(job: Engine) -> dict[str, Any]:
    found = json.loads(transactions(job, "list", "--for", "0.5", "--json"))["open"]
    return {f"{each['topic']}[{each['partition']}]": each for each in found}


def test_what_a_task_left_open_is_found_and_aborted_and_nothing_else(
    job: Engine, producers: dict[str, Producer]
) -> None:
    names, sink, source = job.names, job.config.sink_topic, job.config.source_topic
    state = names.state("Counter")
    leave_open(producers, job, names.transactional_id(TaskId("Counter", 0)), sink, state)
    leave_open(producers, job, f"foreign {os.getpid()}", source)
    found = listed(job)
    assert {*found} == {f"{topic}[0]" for topic in (sink, state, source)}
    assert [each["hidden"] for each in found.values()] == [1, 1, 1]
    assert found[f"{state}[0]"]["tasks"] == ["Counter_0"]
    assert found[f"{sink}[0]"]["tasks"] == ["Counter_0", "Counter_1"]
    assert found[f"{source}[0]"]["tasks"] == []
    # Only state topics have the brokers' time.
    assert time.time() * 1000 - found[f"{state}[0]"]["since_ms"] < 600_000
    assert found[f"{sink}[0]"]["since_ms"] is None

    refused = transactions(job, "abort", "--task", "Counter_0", code=2)
    assert "Nobody can be asked here" in refused
    assert len(listed(job)) == 3
    said = transactions(job, "abort", "--all", "--yes")
    assert "2 tasks to fence, and 0 that run are left alone: Counter_0, Counter_1" in said
    # The foreign one is still there, and named.
    assert {*listed(job)} == {f"{source}[0]"}
    assert f"{source}[0]" in said
    assert "other programs" in said

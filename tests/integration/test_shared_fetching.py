"""Tasks of a PipelineThread share a consumer on a real Kafka without waiting for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.pipelines.specs import ClassSpec, ForwardSpec, ProcessorSpec
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.tasks import TaskId
from tests.tasks import Job, Record, Thread, step_until

pytestmark = pytest.mark.integration
COUNT = 2000
FORWARD = ForwardSpec()
BUFFERED = 20


@pytest.fixture
def job(tmp_path: Path, bootstrap_servers: str) -> Iterator[Job]:
    made = Job(tmp_path, bootstrap_servers)
    made.config = replace(made.config, max_batch_records=50, modules=("tests.user_code.slow",))
    made.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(COUNT)))
    yield made
    made.close()


def processor(job: Job, name: str, spec: ProcessorSpec = FORWARD) -> ProcessorReplica:
    """Return a task that reads the source and writes to a topic of its own."""
    return replace(
        job.replica(spec), task=TaskId(name, 0), out_topics=(job.make_topic(f"out_{name}"),)
    )


def slow(job: Job) -> ProcessorReplica:
    spec = ClassSpec(
        code="tests.user_code.slow:Slow", config={"seconds": 0.001}, buffered_records=BUFFERED
    )
    return processor(job, "Slow", spec)


def results(job: Job, replica: ProcessorReplica) -> list[int]:
    return [int(record.value or b"") for record in job.read(replica.out_topics[0])]


class Progress:
    """The committed offsets of tasks; a reader for each group asks the brokers."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._readers: dict[str, PartitionReader] = {}

    def of(self, replica: ProcessorReplica) -> int:
        group = self._job.names.consumer_group(replica.task.processor)
        if group not in self._readers:
            self._readers[group] = PartitionReader(self._job.config, group)
            self._job.readers.append(self._readers[group])
        at = (self._job.config.source_topic, 0)
        found = self._readers[group].committed([at], 30).get(at)
        return 0 if found is None else found.offset


def consumers(thread: Thread) -> int:
    return len(thread.thread._consumers._consumers)


def test_a_slow_task_falls_behind_and_comes_back(job: Job) -> None:
    thread, progress = Thread(job, 0), Progress(job)
    fast_one, slow_one = processor(job, "Fast"), slow(job)
    thread.assign(slow_one)
    thread.assign(fast_one)

    step_until(lambda: progress.of(fast_one) == COUNT, thread)

    behind = progress.of(slow_one)
    assert behind < COUNT
    step_until(lambda: progress.of(slow_one) == COUNT, thread)
    assert results(job, fast_one) == results(job, slow_one) == list(range(COUNT))
    step_until(lambda: consumers(thread) == 1, thread)
    thread.close()


def test_tasks_that_come_one_after_the_other_end_up_with_one_consumer(job: Job) -> None:
    thread, progress = Thread(job, 0), Progress(job)
    replicas = [processor(job, f"P{number}") for number in range(4)]
    for replica in replicas:
        thread.assign(replica)
        step_until(lambda replica=replica: progress.of(replica) > 0, thread)  # type: ignore[misc]
    thread.revoke(replicas[1].task)
    step_until(lambda: replicas[1].task not in thread.thread.tasks, thread)
    job.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(COUNT, COUNT + 10)))
    thread.assign(replicas[1])

    for replica in replicas:
        step_until(lambda replica=replica: progress.of(replica) == COUNT + 10, thread)  # type: ignore[misc]
        assert results(job, replica) == list(range(COUNT + 10))
    step_until(lambda: consumers(thread) == 1, thread)
    thread.close()

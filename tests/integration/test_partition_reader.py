"""The consumer of a PipelineThread, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition

from kafka_pipeline.common.kafka import managed_consumer, stall_watch
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from tests.tasks import Job, Record

pytestmark = pytest.mark.integration

OLDEST = 10


@pytest.fixture
def reader(job: Job) -> Iterator[PartitionReader]:
    """Reads of a topic whose first records are deleted."""
    job.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(2 * OLDEST)))
    Admin(job.config).delete_before({(job.config.source_topic, 0): OLDEST})
    with closing(PartitionReader(job.config, "group")) as made:
        yield made


def read(reader: PartitionReader) -> tuple[list[int], list[str]]:
    """Return the offsets and the errors that come within some seconds, or until the end."""
    offsets: list[int] = []
    errors: list[str] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        fetched = reader.fetch(100, 0.1)
        offsets += [o for batch in fetched.batches for o in batch.offsets]
        errors += [error.reason for error in fetched.errors]
        if errors or fetched.ends:
            break
    return offsets, errors


def test_deleted_offset_is_an_error(job: Job, reader: PartitionReader) -> None:
    reader.assign({(job.config.source_topic, 0): OLDEST - 1})
    offsets, errors = read(reader)
    assert offsets == []
    assert len(errors) == 1
    assert "its record was deleted before it was processed" in errors[0]


def test_error_of_an_earlier_assignment_is_not_taken_for_one_of_this(
    job: Job, reader: PartitionReader
) -> None:
    """librdkafka keeps it in its queue: errors have no version, as records have.

    So a task that came back to its thread, after another TaskManager had gone on with it and the
    arc was purged, would fail for the offset at which it had stood.
    """
    partition = (job.config.source_topic, 0)
    reader.assign({partition: OLDEST - 1})
    time.sleep(2)
    reader.unassign([partition])
    reader.assign({partition: OLDEST})
    assert read(reader) == (list(range(OLDEST, 2 * OLDEST)), [])


def test_consumer_that_stands_still_is_replaced_where_it_was_and_paused_partitions_stay_so(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watch, "SILENCE_S", 0.3)
    monkeypatch.setattr(stall_watch, "GRACE_S", 0.3)
    partition, paused = (job.config.source_topic, 0), (job.config.source_topic, 1)
    job.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(3)))
    with closing(PartitionReader(job.config, "group", job.admin)) as reader:
        reader.assign({partition: 0, paused: 0})
        assert read_until(reader, partition, 3) == [0, 1, 2]
        reader.pause([paused])
        # As if it did not fetch any more.
        reader._consumer.client.pause([TopicPartition(*partition)])
        before = reader._consumer.client
        job.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(3)))
        job.write(*(Record(b"k", b"%d" % n, n + 1, partition=1) for n in range(3)))
        assert read_until(reader, partition, 6) == [3, 4, 5]
        assert reader._consumer.client is not before
        assert not any(reader.fetch(100, 0.1).batches for _ in range(20))
        reader.resume([paused])
        assert read_until(reader, paused, 3) == [0, 1, 2]


def test_each_record_comes_once_whether_it_finds_a_consumer_at_rest_or_awake(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(managed_consumer, "REST_AFTER_S", 0.1)
    partition = (job.config.source_topic, 0)
    with closing(PartitionReader(job.config, "group", job.admin)) as reader:
        reader.assign({partition: 0})
        for first in range(0, 9, 3):
            deadline = time.monotonic() + 20
            while not reader._consumer._is_at_rest:
                assert not reader.fetch(100, 0.1).batches
                assert time.monotonic() < deadline
            job.write(*(Record(b"k", b"%d" % n, n + 1) for n in range(3)))
            assert read_until(reader, partition, first + 3) == [first, first + 1, first + 2]
            reader.fetch(100, 0.1)


def test_records_have_the_epoch_of_the_leader_that_took_them(job: Job) -> None:
    partition = (job.config.source_topic, 0)
    job.write(Record(b"k", b"v", 1))
    with closing(PartitionReader(job.config, "group")) as reader:
        reader.assign({partition: 0})
        read_until(reader, partition, 1)
        assert job.admin.leader_epochs([partition]) == {partition: reader.leader_epoch(partition)}


def read_until(reader: PartitionReader, partition: Partition, end: int) -> list[int]:
    """Return the offsets that come of a partition, the last of which is `end` - 1."""
    offsets: list[int] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (not offsets or offsets[-1] < end - 1):
        for batch in reader.fetch(100, 0.1).batches:
            assert (batch.topic, batch.partition) == partition
            offsets += batch.offsets
    return offsets

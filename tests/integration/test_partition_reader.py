"""The consumer of a PipelineThread, on a real Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from common.kafka.admin import Admin
from common.kafka.data import PartitionReader
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
        errors += [why for _, why in fetched.errors]
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

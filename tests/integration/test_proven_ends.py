"""The ends of topics that a write proves, on a real Kafka, where a leader may tell old ones."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_range
from kafka_pipeline.common.kafka.clients import FencedError, Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.proven_ends import proven_ends
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.deployment.arc_contents import ArcContents
from kafka_pipeline.deployment.plan import Arc
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.tasks import Job

pytestmark = pytest.mark.integration

PIPELINE = """
- {id: First, type: forward, to: [Second]}
- {id: Second, type: forward, to: [sink]}
"""


class CutOff(Admin):
    """Asks leaders that have got no record yet."""

    def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)


def write(job: Job, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": job.config.bootstrap_servers})
    for _ in range(count):
        producer.produce(topic, b"1", b"k", 0)
    producer.flush(30)


def test_end_is_where_the_fenced_writer_stopped_and_the_record_is_never_seen(job: Job) -> None:
    state, source = (job.names.state("P"), 0), (job.config.source_topic, 1)
    with closing(TaskProducer(job.config, "writer", {})) as former:
        former.fence(30)
        former.begin()
        former.send(*state[:1], b"k", b"v", 0, None, 0)
        former.commit({source: Committed(7)}, job.readers[0].group_metadata)
        former.begin()
        former.send(*state[:1], b"k", b"open", 0, None, 0)
        former.deliver_state()
        # A record, the marker of its transaction, one that is open, and the marker of the fence.
        assert proven_ends(job.config, "writer", [state, source]) == {state: 4, source: 0}
        with pytest.raises(FencedError):
            former.commit({source: Committed(9)}, job.readers[0].group_metadata)
    again = proven_ends(job.config, "writer", [state])[state]
    values = [v for batch in read_range(job.config, *state, 0, again) for v in batch.values]
    assert values == [b"v"]


def test_arc_is_not_drained_although_a_leader_says_that_it_has_nothing(
    job: Job, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    pipeline = load_pipeline(file, job.config)
    job.admin.ensure_topics(pipeline.data_topics(1))
    (topic,) = pipeline.arcs
    arc = Arc(topic, ("First",), "Second")
    contents = ArcContents(job.config, CutOff(job.config), pipeline)
    write(job, topic, 3)
    assert contents.left(arc, contents.ends(arc)) == 0
    ends = contents.proven_ends(arc)
    assert contents.left(arc, ends) == 3
    with closing(PartitionReader(job.config, pipeline.names.consumer_group("Second"))) as reader:
        reader._consumer.client.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert contents.left(arc, ends) == 0

"""The ends of topics that a write proves, on a real Kafka, where a leader may tell old ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.control.topics import control_topic
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.kafka import proven_ends as ends
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.bulk import read_range
from kafka_pipeline.common.kafka.clients import FencedError, Partition
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.moving import RecordMover
from kafka_pipeline.common.kafka.proven_ends import proven_ends
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.deployment.arc_contents import ArcContents
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.deployment.plan import Arc
from kafka_pipeline.operations import reset
from kafka_pipeline.operations.reset import Inputs, Reset, Shift, Target
from kafka_pipeline.operations.starts import AtOffset, AtTime, Earliest, Latest
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.tasks import Job

pytestmark = pytest.mark.integration

PIPELINE = """
- {id: First, type: forward, to: [Second]}
- {id: Second, type: forward, to: [sink]}
"""


class CutOff(Admin):
    """Asks leaders that have got only the records before an offset."""

    def __init__(self, config: Config, end: int = 0) -> None:
        super().__init__(config)
        self._end = end

    def stable_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, self._end)


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


def test_a_mover_finds_ends_that_no_reader_sees_and_writes_on(job: Job) -> None:
    places = [(job.names.state("P"), 0), (job.config.source_topic, 1)]
    topic = places[0][0]
    mover = RecordMover(job.config, "mover")
    assert mover.find_ends(places) == dict.fromkeys(places, 0)
    mover.write([(topic, b"k", b"v", 0, 1, [])])
    # The record before and its marker, then the one that is committed, and its marker.
    assert mover.find_ends(places) == {places[0]: 4, places[1]: 2}
    values = [v for batch in read_range(job.config, topic, 0, 0, 4) for v in batch.values]
    assert values == [b"v"]
    RecordMover(job.config, "mover")
    with pytest.raises(UnavailableError, match="the ends of topics are not sure"):
        mover.find_ends(places)


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
    found = contents.proven_ends(arc)
    assert contents.left(arc, found) == 3
    with closing(PartitionReader(job.config, pipeline.names.consumer_group("Second"))) as reader:
        reader._consumer.client.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert contents.left(arc, found) == 0


def test_reset_believes_no_offset_that_a_broker_without_replicas_gives(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is at 3 of 3. A coordinator that is cut off says 1, and a leader, that 2 is all.

    Nobody writes to the source to prove its end, but to an arc.
    """
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.replace("First", "P"))
    pipeline = load_pipeline(file, job.config)
    wish, version = Wish(version=1), PipelineVersion(1, pipeline, "", 0, "")
    deployment = Deployment(job.names)
    for record in records(job.names, wish, version):
        deployment.take(record)
    proof = control_topic(job.config, job.names.threads_jm)
    job.admin.ensure_topics([proof, *pipeline.data_topics(1)])
    for topic in (job.config.source_topic, *pipeline.arcs):
        write(job, topic, 3)
    job.set_committed(3)
    ask = PartitionReader.committed

    def cut_off(
        self: PartitionReader, wanted: Sequence[Partition], timeout_s: float, *proof: Partition
    ) -> dict[Partition, Committed]:
        found = ask(self, wanted, timeout_s, *proof)
        return found if proof else {place: at._replace(offset=1) for place, at in found.items()}

    monkeypatch.setattr(PartitionReader, "committed", cut_off)
    monkeypatch.setattr(reset, "read_deployment", lambda *_: deployment)
    monkeypatch.setattr(reset, "read_status", lambda *_: None)
    monkeypatch.setattr(reset, "_require_rest", lambda *_: None)

    def offset(target: Target, processor: str = "P") -> int:
        (move,) = Reset(job.config, [processor], target, Inputs(partitions=[0])).moves
        return move.offset

    assert [offset(target) for target in (Shift(-2), Shift(4), Latest())] == [1, 3, 3]
    cut_off_leader = CutOff(job.config, 2)
    monkeypatch.setattr(reset, "connected", lambda *_: cut_off_leader)
    for target in (Latest(), Shift(1), AtOffset(3), AtTime(2**50)):
        with pytest.raises(UnavailableError, match="ends at offset 2, before the committed offset"):
            offset(target)
    assert [offset(target) for target in (Earliest(), AtOffset(2), Shift(-2))] == [0, 2, 1]
    monkeypatch.setattr(ends, "_MARKERS_TIMEOUT_S", 1)
    with pytest.raises(UnavailableError, match=r"stays open in P_Second.*, or its leader is cut"):
        offset(Latest(), "Second")
    monkeypatch.setattr(reset, "connected", Admin)
    # The record that has proven the end above, and the marker of its transaction.
    assert offset(Latest(), "Second") == 5

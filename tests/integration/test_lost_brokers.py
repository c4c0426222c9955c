"""Clients whose only broker goes and comes back, or who lose one of three."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from kafka_pipeline.admin.broker.local_cluster import LocalCluster, delete_data
from kafka_pipeline.common.committed import Committed, InputProgress
from kafka_pipeline.common.config.config import Config, load_config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, TransactionFailedError, client_config
from kafka_pipeline.common.kafka.control import CommandWriter, ControlReader, ReportWriter
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.group_positions import GroupPositions
from kafka_pipeline.common.kafka.lifeline import LOSS_TIMEOUT_S
from kafka_pipeline.common.kafka.offsets import Offsets
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.pipelines.event_time import EventTimeSpec, Writer
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.streams.event_time.input_time import InputTime
from kafka_pipeline.taskmanager.time_watch import TimeWatch
from tests.small_config import SMALL_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.long]

TIMEOUT_S = 60
START_TIMEOUT_S = 240
"""Three brokers start together, and other tests may run next to this one."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "kafka", is_short_lived=True)
    cluster.start()
    yield cluster
    cluster.stop()
    delete_data(tmp_path / "kafka")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "kafka", num_brokers=3, is_short_lived=True)
    cluster.start(timeout_s=START_TIMEOUT_S)
    yield cluster
    cluster.stop()
    delete_data(tmp_path / "kafka")


@pytest.fixture
def config(cluster: LocalCluster, tmp_path: Path) -> Config:
    return config_of(cluster, tmp_path)


def config_of(cluster: LocalCluster, folder: Path) -> Config:
    file = folder / "config.yaml"
    servers = cluster.bootstrap_servers
    file.write_text(f"{SMALL_CONFIG}kafka: {{bootstrap.servers: '{servers}'}}\n")
    return load_config(file)


def work_until(work: Callable[[], None], condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        work()


def test_all_go_on_with_other_clients_where_they_were(
    cluster: LocalCluster, config: Config
) -> None:
    Admin(config).ensure_topics([TopicSpec("orders", 1, 1), TopicSpec("beats", 1, 1)])
    control, data = ControlReader(config, ["orders", "beats"]), PartitionReader(config, "group")
    data.assign({("orders", 0): 0})
    reports, commands = ReportWriter(config), CommandWriter(config, "leader")
    admin = Admin(config)
    came: list[tuple[str, bytes]] = []
    read: list[bytes | None] = []

    def take() -> None:
        came.extend((record.topic, record.value) for record in control.read(0.1))
        for batch in data.fetch(100, 0.1).batches:
            read.extend(batch.values)

    commands.write([ControlRecord("orders", b"k", b"before", ())])
    work_until(take, lambda: (len(came), len(read)) == (1, 1))
    clients = (control._consumer.client, data._consumer.client, reports._producer, admin._client)

    cluster.kill(1)
    away_until_s = time.monotonic() + LOSS_TIMEOUT_S + 2
    while time.monotonic() < away_until_s:
        take()
        reports.write([])
    began_s = time.monotonic()
    with pytest.raises(TransactionFailedError, match="all brokers were lost"):
        commands.write([ControlRecord("orders", b"k", b"lost", ())])
    assert time.monotonic() - began_s < config.transaction_timeout_ms / 1000 / 2
    cluster.start()

    CommandWriter(config, "leader").write([ControlRecord("orders", b"k", b"after", ())])

    def beat() -> None:
        reports.write([ControlRecord("beats", b"k", b"beat", ())])
        take()

    work_until(beat, lambda: {("orders", b"after"), ("beats", b"beat")} <= set(came))
    work_until(take, lambda: len(read) == 2)
    assert [value for topic, value in came if topic == "orders"] == [b"before", b"after"]
    assert read == [b"before", b"after"]
    assert admin.high_watermarks([("beats", 0)])[("beats", 0)] > 0
    now = (control._consumer.client, data._consumer.client, reports._producer, admin._client)
    assert not any(one is other for one, other in zip(clients, now, strict=True))
    control.close()
    data.close()
    reports.close(5)


def test_log_that_was_cut_and_has_grown_again_is_noticed_by_the_next_reader(
    cluster: LocalCluster, config: Config, tmp_path: Path
) -> None:
    """As after an unclean election: the records before the committed offset are others now."""
    cut, whole = ("cut", 0), ("whole", 0)
    admin = Admin(config)
    admin.ensure_topics([TopicSpec(topic, 1, 1) for topic, _ in (cut, whole)])
    write(cluster, cut, 20)
    write(cluster, whole, 20)
    with (
        closing(PartitionReader(config, "group")) as reader,
        closing(TaskProducer(config, "id", {})) as producer,
    ):
        reader.assign({cut: 0, whole: 0})
        work_until(
            lambda: fetch(reader),
            lambda: set(reader.positions.values()) == {20},
        )
        producer.fence(TIMEOUT_S)
        producer.begin()
        read = {
            place: Committed(20, leader_epoch=reader.leader_epoch(place)) for place in (cut, whole)
        }
        producer.commit(read, reader.group_metadata)
    cluster.kill(1)
    cut_log(tmp_path / "kafka", "cut-0", 15)
    cluster.start()
    write(cluster, cut, 10)
    assert Admin(config).leader_epochs([cut])[cut] != read[cut].leader_epoch
    with (
        closing(PartitionReader(config, "group")) as reader,
        closing(TaskProducer(config, "id", {})) as producer,
    ):
        producer.fence(TIMEOUT_S)
        producer.begin()
        producer.commit(read, reader.group_metadata)  # as a task does that is at rest
        committed = reader.committed([cut, whole], TIMEOUT_S)
        assert committed == read
        (error,) = reader.losses(committed, TIMEOUT_S)
        assert error.partition == cut
        assert "log truncation detected at offset 20" in error.reason
        reader.assign({whole: 15})
        work_until(lambda: fetch(reader), lambda: reader.positions[whole] == 20)


def fetch(reader: PartitionReader) -> None:
    reader.fetch(100, 0.1)


def write(cluster: LocalCluster, place: Partition, records: int) -> None:
    """Write records, each as a batch of its own."""
    topic, number = place
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for _ in range(records):
        producer.produce(topic, b"value", partition=number)
        assert not producer.flush(TIMEOUT_S)


def cut_log(folder: Path, partition: str, offset: int) -> None:
    """Take from the log of a partition, whose broker is down, all from an offset on."""
    (log,) = folder.rglob(f"{partition}/{0:020}.log")
    content, place = log.read_bytes(), 0
    while int.from_bytes(content[place : place + 8], "big") < offset:
        place += 12 + int.from_bytes(content[place + 8 : place + 12], "big")
    os.truncate(log, place)
    for index in log.parent.glob("*index"):
        index.unlink()


def test_event_time_and_lag_go_on_without_one_of_three(three: LocalCluster, tmp_path: Path) -> None:
    """The broker that leads some of the partitions is killed, and stays away."""
    config = config_of(three, tmp_path)
    admin = Admin(config)
    admin.ensure_topics([TopicSpec("in", 3, 3), TopicSpec("arc", 3, 3)])
    writers = tuple(Writer(processor=f"P{number}", inputs={"in": 3}) for number in range(6))
    arcs = [("arc", number) for number in range(3)]
    tasks = {TaskId("Counts", arc[1]): InputTime({arc: len(writers)}, 3000) for arc in arcs}
    watch = TimeWatch(config, GroupPositions(config, admin))
    offsets = Offsets(config, admin)
    for task, input_time in tasks.items():
        watch.watch(task, EventTimeSpec(writers={"arc": writers}), input_time)
    watch.start()

    def commit(time_ms: int) -> None:
        at = Committed(0, time_ms, progress=InputProgress(0, time_ms, time_ms)).metadata
        for writer in writers:
            group = config.topic_names.consumer_group(writer.processor)
            places = [TopicPartition("in", number, 0, metadata=at) for number in range(3)]
            with closing(Consumer(client_config(config, "consumer", group_id=group))) as consumer:
                work_until(lambda: None, partial(commits, consumer, places))

    def times() -> set[int]:
        return {each.update(0, lambda _: 0, lambda _: -1, ()) for each in tasks.values()}

    commit(1000)
    work_until(lambda: time.sleep(0.1), lambda: times() == {1000})
    work_until(lambda: time.sleep(0.1), lambda: set(offsets.stable_ends(arcs)) == set(arcs))
    leader = admin._client.list_topics("arc").topics["arc"].partitions[0].leader
    three.kill(leader)
    killed_s = time.monotonic()
    commit(2000)
    work_until(lambda: time.sleep(0.1), lambda: times() == {2000})
    work_until(lambda: time.sleep(0.1), lambda: set(offsets.stable_ends(arcs)) == set(arcs))
    assert time.monotonic() - killed_s < 60
    watch.close()


def commits(consumer: Consumer, places: list[TopicPartition]) -> bool:
    try:
        consumer.commit(offsets=places, asynchronous=False)
    except KafkaException:
        return False
    return True

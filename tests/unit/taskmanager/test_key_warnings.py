"""Warnings of keys that do not meet those of others: in the log once, and in the status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from structlog.testing import capture_logs

from kafka_pipeline import StreamsBuilder, serdes
from kafka_pipeline.common.protocol.key_warnings import KeyProblem, KeyWarning
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.engine.node_group import NodeGroup
from kafka_pipeline.streams.partitioning import crc32_partition, default_partition
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.task_entry import Phase
from tests.unit.taskmanager.noting import assigned_to, start

PARTITIONS = 6
KEYS = [b"customer-%d" % number for number in range(80)]
EXPECTED = KeyWarning(
    "orders", KeyProblem.PARTITIONS, "Joined", ("customers",), "consistent_random"
)


def joined() -> NodeGroup:
    builder = StreamsBuilder(key_serde=serdes.string, value_serde=serdes.json)
    customers = builder.table("customers", name="Customers", history_retention_ms=1)
    builder.stream("orders").join(customers, lambda order, customer: order, name="Joined").to("out")
    (group,) = builder.build().groups
    stores = (replace(store, persistent=False, logged=False) for store in group.stores)
    return replace(group, stores=tuple(stores))


def batch(topic: str, number: int, keys: Sequence[bytes]) -> RecordBatch:
    size = len(keys)
    return RecordBatch(topic, number, keys, [b"{}"] * size, [10**12] * size, range(5, 5 + size))


def feed(assigned: AssignedTask) -> None:
    """Let a task take in records of customers by murmur2, and of orders by CRC32."""
    task, number = start(assigned), assigned.replica.task.partition
    for topic, by in (("customers", default_partition), ("orders", crc32_partition)):
        task.add(batch(topic, number, [key for key in KEYS if by(key, PARTITIONS) == number]))
    task.turn(inf)


@pytest.mark.parametrize("number", [1, 2])
def test_a_task_warns_in_its_status_and_once_in_the_log(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assigned = assigned_to([], number, monkeypatch, joined, topics=("customers", "orders"))
    with capture_logs() as logs:
        feed(assigned)
        other = replace(assigned.replica, task=TaskId("P", number + 2))
        feed(AssignedTask(other, assigned._context, 0))
    said = [log for log in logs if log["event"] == "records with the same key do not meet"]
    assert [(log["topic"], log["reason"]) for log in said] == [("orders", EXPECTED.text)]
    assert assigned.status(Phase.IDLE, 0, "").key_warnings == (EXPECTED,)
    start(assigned)
    assert assigned.status(Phase.IDLE, 0, "").key_warnings == ()

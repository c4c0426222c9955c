"""A task that lacks a right says which one, without keeping others from their work."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_pipeline.common.kafka.clients import MissingRightError
from kafka_pipeline.common.pipelines.processors import OnError
from kafka_pipeline.common.pipelines.specs import (
    ClassSpec,
    CountSpec,
    ForwardSpec,
    ProcessorSpec,
    TopologySpec,
)
from kafka_pipeline.common.protocol.messages import ProcessorReplica
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.streams.engine.event_loop import EventLoop
from kafka_pipeline.taskmanager.assigned_task import AssignedTask
from kafka_pipeline.taskmanager.task_rights import named, topic_rights
from kafka_pipeline.taskmanager.task_start import ProcessorStart, StartWait
from tests.unit.taskmanager.fakes import CONFIG, Rig, batch, replica

NAMES = TopicNames("shop", "source", "sink")
USER = ClassSpec(code="shop:A")


class FakeBrokers:
    """Says which rights are missing, when a test lets it."""

    def __init__(self, *missing: str) -> None:
        self.missing = list(missing)
        self.asked: Mapping[str, Collection[str]] = {}
        self.answers = threading.Event()
        self.answers.set()

    def missing_rights(self, needed: Mapping[str, Collection[str]]) -> list[str]:
        self.asked = needed
        assert self.answers.wait(20)
        return self.missing


def error_of(code: int) -> MissingRightError:
    return MissingRightError(KafkaError(code))


ON_TOPIC = error_of(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def said(error: MissingRightError, *missing: str, of: ProcessorReplica | None = None) -> str:
    brokers: Any = FakeBrokers(*missing)
    return str(named(error, of or replica(0), NAMES, brokers))


def test_the_group_and_the_id_are_those_of_the_task() -> None:
    group = said(error_of(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert f"missing, Read of group {NAMES.consumer_group('P')} " in group
    id_ = said(error_of(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert f"missing, Write of transactional id {NAMES.transactional_id(TaskId('P', 0))} " in id_


def test_topics_are_asked_for() -> None:
    assert "missing, Write of topic out (" in said(ON_TOPIC, "Write of topic out")
    both = said(ON_TOPIC, "Read of topic in", "Write of topic out")
    assert "missing, Read of topic in, Write of topic out (" in both


def test_a_right_that_is_back_by_now_or_on_the_cluster_is_not_named() -> None:
    assert said(ON_TOPIC) == str(ON_TOPIC)
    cluster = error_of(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    assert said(cluster, "Read of topic in") == str(cluster)


def test_a_task_needs_what_pipeline_acls_prints() -> None:
    stateful = replace(
        replica(0, TopologySpec(code="shop:build", group="source", followed={"n": "names"})),
        state_topics={"counts": "state"},
        dead_letter_topic="dead",
        on_error=OnError.DEAD_LETTER,
    )
    write = {"Write", "DescribeConfigs"}
    assert topic_rights(stateful) == {
        "in": {"Read"},
        "names": {"Read"},
        "state": {"Read", *write},
        "out": write,
        "dead": write,
    }
    assert topic_rights(replica(0)) == {"in": {"Read"}, "out": write}
    assert "dead" not in topic_rights(replace(stateful, on_error=OnError.FAIL))


# In the loop.


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    made = Rig(monkeypatch)
    yield made
    made.thread.close()


def refuse(rig: Rig) -> FakeBrokers:
    brokers = FakeBrokers("Write of topic out")
    rig.thread._context.clients.brokers = brokers  # type: ignore[misc,assignment]
    return brokers


def deny() -> None:
    raise ON_TOPIC


@pytest.mark.parametrize("spec", [ForwardSpec(), USER], ids=["inline", "user"])
@pytest.mark.parametrize("place", ["on_start", "on_turn", "on_commit"])
def test_a_task_that_lacks_a_right_says_which_one(
    rig: Rig, spec: ProcessorSpec, place: str
) -> None:
    brokers = refuse(rig)
    task = rig.assign(0, spec)
    setattr(task, place, deny)
    rig.step()
    if place != "on_start":
        rig.step_until(lambda: rig.reader.assigned == set(task.partitions))
        rig.reader.batches.append(batch(0))
    rig.step_until(lambda: rig.status(task).state is TaskState.FAILED)
    assert "a right is missing, Write of topic out (" in rig.status(task).reason
    assert rig.status(task).count("restarts") == 0
    assert set(brokers.asked) == {"in", "out"}


def test_others_work_while_a_broker_is_asked(rig: Rig) -> None:
    task, other = rig.run(0, 1)
    brokers = refuse(rig)
    brokers.answers.clear()
    task.on_turn = deny
    rig.reader.batches += [batch(0), batch(1)]
    rig.step_until(lambda: other.committed == 1)
    assert rig.status(task).state is TaskState.RUNNING
    brokers.answers.set()
    rig.step_until(lambda: rig.status(task).state is TaskState.FAILED)


def test_a_task_that_is_revoked_while_a_broker_is_asked_is_closed(rig: Rig) -> None:
    (task,) = rig.run(0)
    brokers = refuse(rig)
    brokers.answers.clear()
    task.on_turn = deny
    rig.reader.batches.append(batch(0))
    rig.step_until(lambda: task.turns == 1)
    rig.revoke(task)
    rig.step()
    brokers.answers.set()
    rig.step_until(lambda: not rig.thread.tasks)
    assert task.is_released


def test_a_long_wait_for_a_coordinator_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    context: Any = SimpleNamespace(
        config=CONFIG,
        tm_id=0,
        thread=0,
        lag_watch=SimpleNamespace(figures=lambda _: {}),
        new_event_loop=EventLoop,
    )
    assigned = AssignedTask(replica(0, CountSpec()), context, 0)
    start = assigned.new_start()
    assert isinstance(start, ProcessorStart)
    start.wait = StartWait("the coordinator of group shop_P", now_s)
    now_s += 9
    assert assigned._activity() == ""
    now_s += 3
    assert assigned._activity() == "waits for the coordinator of group shop_P for 12 s"

"""Heartbeats become the state of the cluster, however often its daemons start again."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.cluster.cluster_status import Presence
from kafka_pipeline.common.control.heartbeat_log import HeartbeatLog
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    Message,
    Report,
    Threads,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from tests.small_config import small_config

CONFIG = small_config()
TASK = TaskId("P", 0)
RUNNING = TaskStatus(TASK, TaskState.RUNNING)


def record(message: Message, at_ms: int) -> ControlRecord:
    (made,) = Codec(CONFIG.topic_names).encode(message, at_ms)
    return replace(made, timestamp_ms=at_ms)


def test_the_first_report_of_a_task_manager_counts_whatever_topic_it_is_in() -> None:
    log = HeartbeatLog(CONFIG)
    log.take(record(JobManagerBeat(1, 0, {TASK: 0}), 50))
    log.take(record(Threads(Report(0, "a", 1, 1, tasks=(RUNNING,))), 100))
    log.take(record(Heartbeat(Report(0, "a", 1, 2, base=1)), 200))
    (info,) = log.status(300).tasks
    assert info.status == RUNNING


def test_what_is_not_a_heartbeat_is_ignored() -> None:
    log = HeartbeatLog(CONFIG)
    log.take(ControlRecord("heartbeat_topic", b"0", b"ping", (("version", b"x"),)))
    assert log.status(0).task_managers[0].presence is Presence.ABSENT


def test_a_task_manager_that_starts_again_and_again_does_not_fill_the_memory() -> None:
    log = HeartbeatLog(CONFIG)
    sizes = set()
    for at_ms in range(100):
        log.take(record(Heartbeat(Report(0, f"process{at_ms}", 1, 1, pid=at_ms)), at_ms))
        assert log.status(at_ms).task_managers[0].pid == at_ms
        sizes.add((len(log._beats), len(log._reported)))
    assert max(sizes) == (8, 8)

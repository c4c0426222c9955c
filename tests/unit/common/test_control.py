"""Reports are small enough for Kafka, and errors in sending them are logged."""

from __future__ import annotations

from dataclasses import replace

from structlog.testing import capture_logs

from kafka_pipeline.common.kafka.control import ReportWriter
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import ControlRecord, Heartbeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from tests.unit.common.config_texts import BASE, load


def test_a_report_that_is_too_large_is_told_once_in_ten_seconds() -> None:
    writer = ReportWriter(load(BASE.replace("9092", "1")))
    with capture_logs() as logs:
        for _ in range(3):
            writer.write([ControlRecord("beats", b"0", bytes(2_000_000), ())])
    assert [(log["event"], log["topic"]) for log in logs] == [("a report cannot be sent", "beats")]
    assert "too large" in logs[0]["reason"]


def test_a_report_stays_small_enough_whatever_the_tasks_failed_with() -> None:
    failed = tuple(
        TaskStatus(TaskId("P", number), TaskState.FAILED, "\U0001f41f" * 10_000)
        for number in range(1000)
    )
    report = Report(tm_id=0, incarnation="i", threads=1, beat=1, tasks=failed)
    (record,) = Codec(TopicNames("job", "in", "out")).encode(Heartbeat(report), 0)
    message = Codec(TopicNames("job", "in", "out")).decode(record)
    assert isinstance(message, Heartbeat)
    assert {task.reason for task in message.report.tasks} == {"\U0001f41f" * 30 + "…"}
    (record,) = Codec(TopicNames("job", "in", "out")).encode(
        Heartbeat(replace(report, tasks=failed[:1])), 0
    )
    message = Codec(TopicNames("job", "in", "out")).decode(record)
    assert isinstance(message, Heartbeat)
    assert message.report.tasks[0].reason == "\U0001f41f" * 500 + "…"

"""Reports that cannot be sent are told."""

from __future__ import annotations

from structlog.testing import capture_logs

from common.kafka.control import ReportWriter
from common.messages import ControlRecord
from tests.unit.common.config_texts import BASE, load


def test_a_report_that_is_too_large_is_told_once_in_ten_seconds() -> None:
    writer = ReportWriter(load(BASE.replace("9092", "1")))
    with capture_logs() as logs:
        for _ in range(3):
            writer.write([ControlRecord("beats", b"0", bytes(2_000_000), ())])
    assert [(log["event"], log["topic"]) for log in logs] == [("a report cannot be sent", "beats")]
    assert "too large" in logs[0]["reason"]

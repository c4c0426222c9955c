"""What daemons say in their log while they wait for each other."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from kafka_pipeline.common.monitoring.long_wait import LongWait


def test_a_wait_is_logged_each_ten_seconds_and_begins_anew_after_it_ended() -> None:
    with capture_logs() as logs:
        wait = LongWait(structlog.get_logger(), "nobody is there")
        for tenth in range(250):
            wait.look(100 + tenth / 10, waits=True)
        wait.look(126, waits=False)
        for second in range(127, 138):
            wait.look(second, waits=True)
    assert [(entry["event"], entry["seconds"]) for entry in logs] == [
        ("nobody is there", 10),
        ("nobody is there", 20),
        ("nobody is there", 10),
    ]

"""Results whose own time is further back than their topic keeps records: Kafka deletes them."""

from __future__ import annotations

from math import inf

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.clock import wall_clock_ms
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.common.topics import ANY_TIME_MS, TopicLimits
from tests.unit.taskmanager import fakes
from tests.unit.taskmanager.noting import assigned_to, start

WEEK_MS = 7 * 86_400_000


@pytest.mark.parametrize(
    ("kept_ms", "age_ms", "topics"),
    [(WEEK_MS, WEEK_MS + 60_000, ["out"]), (WEEK_MS, 0, []), (ANY_TIME_MS, 2 * WEEK_MS, [])],
)
def test_a_task_warns_once_of_results_that_are_deleted_soon(
    kept_ms: int, age_ms: int, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = TopicLimits(1_000_000, kept_ms=kept_ms)
    monkeypatch.setattr(
        fakes.FakeAdmin, "topic_limits", lambda self, names: dict.fromkeys(names, limits)
    )
    task = start(assigned_to([], 1, monkeypatch))
    with capture_logs() as logs:
        for offset in range(2):
            at_ms = wall_clock_ms() - age_ms
            task.add(RecordBatch("in", 1, [b"a"], [b"1"], [at_ms], [offset], None))
            task.turn(inf)
            task.commit()
    said = [log for log in logs if log["event"].startswith("Kafka deletes these results soon")]
    assert [log["topic"] for log in said] == topics

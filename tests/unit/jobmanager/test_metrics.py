"""The metrics of a JobManager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kafka_pipeline.common.monitoring.metric import Metric
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.jobmanager import metrics
from kafka_pipeline.jobmanager.leadership import LeaderState
from kafka_pipeline.jobmanager.metrics import JobManagerView, ReceivedBeats, samples

A0, A1, B0 = TaskId("A", 0), TaskId("A", 1), TaskId("B", 0)

Found = Mapping[tuple[str, tuple[str, ...]], Any]


def look(**facts: Any) -> Found:
    """Return the values of a JobManager that leads two TaskManagers, by name and labels."""
    usual: dict[str, Any] = {
        "state": LeaderState.LEADING,
        "epoch": 7,
        "version": 2,
        "is_isolated": False,
        "heartbeats_sent": 5,
        "rejected": 1,
        "findings": 3,
        "tm_number": 2,
        "owners": {},
        "held": (),
        "live": (),
        "code": {},
        "received": {},
        "now_s": 100.0,
    }
    found = [*samples(JobManagerView(**usual | facts))]
    values = {(sample.metric.name, sample.labels): sample.value for sample in found}
    assert len(values) == len(found), "a series is there twice"
    return values


def of(metric: Metric, found: Found, *labels: str) -> Any:
    return found.get((metric.name, labels))


def test_its_own_state_is_shown() -> None:
    found = look()
    assert (of(metrics.EPOCH, found), of(metrics.VERSION, found)) == (7, 2)
    assert (of(metrics.HEARTBEATS_SENT, found), of(metrics.REJECTED, found)) == (5, 1)
    assert of(metrics.FINDINGS, found) == 3
    assert (of(metrics.STATE, found, "LEADING"), of(metrics.STATE, found, "CANDIDATE")) == (1, 0)


@pytest.mark.parametrize("is_isolated", [True, False])
def test_isolation_is_shown(is_isolated: bool) -> None:
    assert of(metrics.ISOLATED, look(is_isolated=is_isolated)) == is_isolated


def test_each_task_manager_that_is_expected_has_series_also_if_it_never_came() -> None:
    found = look(live={1: "incarnation"}, received={1: ReceivedBeats(count=4, last_s=98.5)})
    assert (of(metrics.UP, found, "0"), of(metrics.UP, found, "1")) == (0, 1)
    assert of(metrics.HEARTBEATS_RECEIVED, found, "0") == 0
    assert of(metrics.HEARTBEATS_RECEIVED, found, "1") == 4
    assert of(metrics.SILENCE, found, "1") == 1.5
    assert of(metrics.SILENCE, found, "0") is None
    assert of(metrics.EXPECTED, found) == 2


def test_modules_with_different_code_are_counted() -> None:
    code = {0: {"shop": "a", "pay": "a"}, 1: {"shop": "b", "pay": "a"}}
    assert of(metrics.CODE, look(code=code)) == 1
    assert of(metrics.CODE, look()) == 0


def test_silence_goes_on_after_a_task_manager_is_down() -> None:
    found = look(live=(), received={1: ReceivedBeats(count=4, last_s=40.0)})
    assert (of(metrics.UP, found, "1"), of(metrics.SILENCE, found, "1")) == (0, 60.0)


def test_tasks_are_counted_by_owner() -> None:
    found = look(owners={A0: 0, A1: 0, B0: None})
    assert (of(metrics.TASKS, found, "0"), of(metrics.TASKS, found, "1")) == (2, 0)
    assert (of(metrics.WITHOUT_OWNER, found), of(metrics.HELD, found)) == (1, 0)


def test_a_task_that_nobody_is_to_run_is_not_missing() -> None:
    found = look(owners={A0: 0, B0: None}, held={A0, B0})
    assert (of(metrics.WITHOUT_OWNER, found), of(metrics.HELD, found)) == (0, 1)


def test_the_reference_lists_exactly_what_is_shown() -> None:
    found = look(received={0: ReceivedBeats(count=1, last_s=99.0)})
    assert {name for name, _ in found} == {metric.name for metric in metrics.METRICS}

"""The names of all metrics follow Prometheus' conventions."""

from __future__ import annotations

import re

import pytest

from kafka_pipeline.common.monitoring.metric import PREFIX, Metric, MetricKind
from kafka_pipeline.jobmanager import metrics as of_job_manager
from kafka_pipeline.taskmanager import metrics as of_task_manager

METRICS = (
    *of_job_manager.METRICS,
    *of_task_manager.OF_THE_DAEMON,
    *of_task_manager.OF_TASKS,
    *of_task_manager.OF_STANDBYS,
)
LABELS = {
    *("taskmanager", "task", "processor", "partition", "thread"),
    *("state", "reason", "error", "holder", "topic", "problem"),
}
"""All of them are bounded by the pipeline and the cluster; so are reasons and errors, see
`MOST_REASONS` and `MOST_ERRORS`."""


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_name_says_kind_and_unit(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
    assert metric.full_name == f"{PREFIX}{metric.name}"
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.name.endswith("_seconds") or metric.kind is not MetricKind.HISTOGRAM
    assert not re.search(r"_(ms|milliseconds|minutes|kb|mb)(_|$)", metric.name)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_labels_are_bounded(metric: Metric) -> None:
    assert set(metric.labels) <= LABELS
    assert len(set(metric.labels)) == len(metric.labels)


def test_no_two_metrics_have_one_name() -> None:
    names = [name for metric in METRICS for name in metric.series]
    assert len(set(names)) == len(names)


def test_a_sample_has_all_labels() -> None:
    labelled = next(metric for metric in METRICS if metric.labels)
    with pytest.raises(AssertionError, match="has the labels"):
        labelled.sample(1)

"""The figures of tasks together."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.cluster.cluster_status import (
    ClusterStatus,
    JobManagerInfo,
    Presence,
    TaskInfo,
)
from kafka_pipeline.common.cluster.figures import by_processor, together
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId


def info(**figures: int) -> TaskInfo:
    task = TaskId("Count", 0)
    return TaskInfo(task, 0, TaskStatus(task, TaskState.RUNNING, figures=figures), "")


NOT_REPORTED = TaskInfo(TaskId("Count", 1), 0, None, "assigned, not started yet")


@pytest.mark.parametrize(
    ("tasks", "lag"),
    [
        ([info(lag=5), info(lag=6)], 11),
        ([info(lag=0), info(lag=0)], 0),
        ([info(lag=5), info()], None),
        ([info(lag=5), NOT_REPORTED], None),
        ([], None),
    ],
)
def test_lag_is_known_if_that_of_each_task_is(tasks: list[TaskInfo], lag: int | None) -> None:
    assert together(tasks, newest_ms=None).lag == lag


def test_lag_of_a_processor_counts_partitions_that_no_task_reads() -> None:
    manager = JobManagerInfo(Presence.UP, epoch=1, age_ms=0, unread={"Count": 14, "Other": 3})
    status = ClusterStatus(manager, (), (info(lag=5), info(lag=6)))
    assert by_processor(status)["Count"].lag == 25
    unknown = ClusterStatus(manager, (), (info(lag=5), NOT_REPORTED))
    assert by_processor(unknown)["Count"].lag is None

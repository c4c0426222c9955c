"""Which transactions stay open, which tasks may have them, and which may be aborted."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from kafka_pipeline.common.cluster.cluster_status import Beat, snapshot
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.open_transactions import Held
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import (
    SINK,
    SOURCE,
    LoggedStore,
    OnError,
    PipelineProcessor,
)
from kafka_pipeline.common.pipelines.specs import CountSpec, ForwardSpec
from kafka_pipeline.common.protocol.messages import JobManagerBeat, Report
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.operations.transactions import (
    OpenTransaction,
    chosen,
    names,
    running,
    watch,
    writers,
)

A, B = ("sink", 0), ("sink", 1)
PIPELINE = Pipeline(
    (
        PipelineProcessor("F", ForwardSpec(), ("C",), (SOURCE,), OnError.DEAD_LETTER),
        PipelineProcessor("C", CountSpec(), (SINK,), ("F",), stores=(LoggedStore("counts"),)),
    ),
    TopicNames("job", "source", "sink"),
    2,
)
F0, F1, C0, C1 = (TaskId(name, number) for name in "FC" for number in (0, 1))


class Looks:
    """Shows one state of the partitions after the other; the last one stays."""

    def __init__(self, *states: Mapping[Partition, Held]) -> None:
        self.states = [*states]
        self.asked: list[set[Partition]] = []

    def __call__(self, partitions: Collection[Partition]) -> Mapping[Partition, Held]:
        self.asked.append({*partitions})
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {at: held for at, held in state.items() if at in partitions}


def test_only_what_does_not_move_stays_open() -> None:
    looks = Looks({A: Held(5, 9), B: Held(7, 8)}, {A: Held(5, 12), B: Held(8, 9)})
    assert watch(looks, [A, B], 0.01, also_short=False) == {A: (Held(5, 12), True)}


def test_all_that_is_open_at_the_end_is_shown_on_request() -> None:
    looks = Looks({A: Held(5, 9)}, {A: Held(6, 9), B: Held(8, 9)})
    found = watch(looks, [A, B], 0.01, also_short=True)
    assert found == {A: (Held(6, 9), False), B: (Held(8, 9), False)}


def test_nobody_waits_where_nothing_is_open() -> None:
    looks = Looks({})
    assert watch(looks, [A, B], 1000, also_short=True) == {}
    looks = Looks({A: Held(5, 9)}, {})
    assert watch(looks, [A, B], 1000, also_short=False) == {}
    assert looks.asked == [{A, B}, {A}]


def test_a_late_transaction_is_older_than_its_timeout() -> None:
    now_ms, timeout_ms = 1_000_000, 15_000
    one = OpenTransaction("t", 0, 5, 1, watched_ms=3000, since_ms=None, tasks=())
    assert not one.is_late(now_ms, timeout_ms)
    assert OpenTransaction("t", 0, 5, 1, 26_000, None, ()).is_late(now_ms, timeout_ms)
    assert OpenTransaction("t", 0, 5, 1, 0, now_ms - 26_000, ()).is_late(now_ms, timeout_ms)
    assert not OpenTransaction("t", 0, 5, 1, 0, now_ms - 24_000, ()).is_late(now_ms, timeout_ms)


def test_the_tasks_that_write_to_a_partition_are_named() -> None:
    assert writers(PIPELINE, "state_topic_C_job", 1) == (C1,)
    assert writers(PIPELINE, "F_C_job", 1) == (F0, F1)
    assert writers(PIPELINE, "F_dead_letter_job", 0) == (F0, F1)
    assert writers(PIPELINE, "sink", 0) == (C0, C1)
    assert writers(PIPELINE, "source", 0) == ()
    assert names(()) == "other programs"
    assert names((F0, F1, C0, C1)) == "F_0, F_1, C_0 and 1 more"


def test_a_task_runs_if_a_task_manager_that_is_up_has_it() -> None:
    tasks = (TaskStatus(F0, TaskState.RUNNING), TaskStatus(F1, TaskState.FAILED))
    owners = {F0: 0, F1: 0, C0: 0, C1: 1, TaskId("X", 0): None}
    beats = [
        Beat(10_000, JobManagerBeat(0, 10_000, owners)),
        Beat(10_000, Report(0, "a", 1, 1, tasks=tasks)),
        Beat(1000, Report(1, "b", 1, 1, tasks=(TaskStatus(C1, TaskState.RUNNING),))),
    ]
    # C_0 was assigned, and may begin at any moment; the TaskManager of C_1 is down.
    assert running(snapshot(beats, 10_000, 1000, 2)) == {F0, C0}


KNOWN = [C0, C1, F0, F1]


def test_by_default_all_tasks_that_nobody_runs_are_meant() -> None:
    assert chosen(None, KNOWN, {F0}, force=False) == [C0, C1, F1]
    assert chosen(None, KNOWN, {F0}, force=True) == KNOWN


def test_given_tasks_are_meant_unless_they_run() -> None:
    assert chosen(["F_1", "C_0", "F_1"], KNOWN, {F0}, force=False) == [F1, C0]
    with pytest.raises(ConfigError, match=r"F_0: a TaskManager runs it.*--force"):
        chosen(["F_0", "C_0"], KNOWN, {F0}, force=False)
    assert chosen(["F_0"], KNOWN, {F0}, force=True) == [F0]


@pytest.mark.parametrize("name", ["F_2", "C", "F-0", "job_F_0"])
def test_a_task_that_the_job_never_had_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f'never had a task "{name}"'):
        chosen([name], KNOWN, set(), force=True)

"""More TaskManagers than config.yaml says may take part while the job runs, or fewer again."""

from __future__ import annotations

from kafka_pipeline.common.protocol.messages import Refused
from kafka_pipeline.jobmanager.events import PipelineChanged
from tests.unit.jobmanager.leader import Leader, replica

TASKS = [replica(n) for n in range(4)]


def grow(leader: Leader, task_managers: int) -> None:
    leader.state.handle(PipelineChanged(TASKS, task_managers=task_managers))


def owners(leader: Leader) -> set[int | None]:
    return {*leader.state.owners.values()}


def test_a_job_that_grows_takes_in_task_managers_that_it_refused() -> None:
    leader = Leader(tasks=4, tm_number=1)
    leader.settle(0)
    (refusal,) = leader.report(1)
    assert isinstance(refusal, Refused)
    assert refusal.reason == "id 1 is outside 0..0 (tm_number in config.yaml)"
    grow(leader, 2)
    assert leader.state.tm_number == 2
    leader.settle(0, 1)
    assert owners(leader) == {0, 1}
    assert isinstance(leader.report(2)[0], Refused)


def test_never_fewer_than_in_config_yaml_may_take_part() -> None:
    leader = Leader(tasks=4, tm_number=2)
    leader.settle(0, 1)
    for number in (1, 0):
        grow(leader, number)
        assert leader.state.tm_number == 2


def test_a_job_that_shrinks_refuses_them_again() -> None:
    leader = Leader(tasks=4, tm_number=1)
    grow(leader, 3)
    leader.settle(0)
    grow(leader, 2)
    assert isinstance(leader.report(2)[0], Refused)
    assert not any(isinstance(message, Refused) for message in leader.report(1))


def test_a_new_job_manager_waits_for_as_many_as_the_job_was_grown_to() -> None:
    leader = Leader(tasks=4, tm_number=1)
    grow(leader, 2)
    leader.report(0)
    leader.tick()
    assert owners(leader) == {None}
    leader.report(1)
    leader.tick()
    assert owners(leader) == {0, 1}

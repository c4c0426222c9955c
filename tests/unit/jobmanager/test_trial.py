"""A version that is on trial: when it has come up, when it has not, and who waits for it."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import replicas
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.deployment.desired_state import Trial, Wish
from kafka_pipeline.jobmanager.trial import STEADY_BEATS, Confirmed, Rejected, Verdict, VersionTrial
from tests.unit.deployment.test_change import graph
from tests.unit.jobmanager.changing import running, silent_for_three_beats, tasks
from tests.unit.jobmanager.leader import Leader

BEAT_MS = 1000
WITHIN_S = 20
BEFORE = graph("A B C")
AFTER = graph("A B C", B=7)
WISH = Wish(version=2, trial=Trial(back_to=1, within_ms=WITHIN_S * 1000))
STEADY_S = STEADY_BEATS * BEAT_MS // 1000


class Job:
    """Tasks whose owners report what a test says, looked at each second."""

    def __init__(
        self, after: Pipeline = AFTER, before: Pipeline = BEFORE, wish: Wish = WISH
    ) -> None:
        self.replicas = {str(each.task): each for each in replicas(after, 0, wish.restarts)}
        self.reported: dict[TaskId, TaskStatus] = {}
        self.is_isolated = False
        self.now_ms = 0
        self.trial = VersionTrial(before, after, wish, BEAT_MS)

    def report(self, state: TaskState, *names: str, reason: str = "") -> None:
        for name in names:
            unit = self.replicas[name]
            found = TaskStatus(unit.task, state, reason, fingerprint=unit.fingerprint)
            self.reported[unit.task] = found

    def lose(self, name: str) -> None:
        del self.reported[TaskId.parse(name)]

    def look(self, seconds: int = 0) -> Verdict | None:
        verdict = None
        for _ in range(seconds + 1):
            verdict = self.trial.look(self.now_ms, self.reported, is_isolated=self.is_isolated)
            self.now_ms += BEAT_MS
        return verdict


def test_version_is_confirmed_once_what_it_changed_runs_steadily() -> None:
    job = Job()
    job.report(TaskState.STARTING, "B_0")
    assert job.look(3) is None
    job.report(TaskState.RUNNING, "B_0")
    assert job.look(STEADY_S - 2) is None
    assert job.look(2) == Confirmed()


def test_version_that_runs_only_for_moments_is_not_confirmed() -> None:
    job = Job()
    for _ in range(WITHIN_S - 1):  # the first time counts as progress, the next ones do not
        job.report(TaskState.RUNNING, "B_0")
        assert job.look(STEADY_S - 2) is None
        job.report(TaskState.RESTARTING, "B_0", reason="its worker was killed")
        assert job.look() is None
    job.report(TaskState.RESTARTING, "B_0", reason="its worker was killed")
    assert job.look(1) == Rejected("B_0 is RESTARTING after 20 s of trying (its worker was killed)")


def test_failed_task_ends_the_trial_at_once() -> None:
    job = Job()
    job.report(TaskState.FAILED, "B_0", reason="no table of prices")
    assert job.look() == Rejected("B_0 is FAILED (no table of prices)")


def test_version_that_takes_too_long_is_rejected() -> None:
    job = Job()
    job.report(TaskState.STARTING, "B_0")
    assert job.look(WITHIN_S - 1) is None
    assert job.look() == Rejected("B_0 is STARTING after 20 s of trying")


def test_time_begins_anew_whenever_a_task_has_come_up() -> None:
    job = Job(graph("A B C", A=7, B=7, C=7))
    job.report(TaskState.STARTING, "A_0", "B_0", "C_0")
    for name in ("C_0", "B_0"):
        assert job.look(WITHIN_S - 2) is None
        job.report(TaskState.RUNNING, name)
    assert job.look(WITHIN_S - 2) is None
    assert job.look(1) == Rejected("A_0 is STARTING after 20 s of trying")


def test_no_time_passes_while_others_restore_their_state() -> None:
    """They may hold up those that are still to start."""
    job = Job(graph("A B C", A=7, B=7))
    job.report(TaskState.STARTING, "A_0")
    job.report(TaskState.RESTORING, "B_0")
    assert job.look(10 * WITHIN_S) is None


@pytest.mark.parametrize("state", [TaskState.RESTORING, None])
def test_no_time_passes_while_tasks_cannot_try(state: TaskState | None) -> None:
    """They restore their state, or nobody has them, as a TaskManager was lost."""
    job = Job()
    job.report(state or TaskState.STARTING, "B_0")
    if state is None:
        job.lose("B_0")
    assert job.look(10 * WITHIN_S) is None
    job.report(TaskState.STARTING, "B_0")
    assert job.look(WITHIN_S - 2) is None
    assert isinstance(job.look(1), Rejected)


def test_no_time_passes_while_kafka_does_not_carry_heartbeats() -> None:
    job = Job()
    job.report(TaskState.STARTING, "B_0")
    job.is_isolated = True
    assert job.look(10 * WITHIN_S) is None
    job.is_isolated = False
    assert job.look(WITHIN_S - 2) is None
    assert isinstance(job.look(1), Rejected)


def test_time_in_which_the_job_manager_stood_still_counts_as_one_heartbeat() -> None:
    job = Job()
    job.report(TaskState.STARTING, "B_0")
    assert job.look() is None
    job.now_ms += 3_600_000
    assert job.look() is None


def test_task_manager_that_is_lost_begins_the_steady_time_anew() -> None:
    job = Job()
    job.report(TaskState.RUNNING, "B_0")
    assert job.look(STEADY_S - 1) is None
    job.lose("B_0")
    assert job.look(1) is None
    job.report(TaskState.RUNNING, "B_0")
    assert job.look(STEADY_S - 2) is None
    assert job.look(1) == Confirmed()


def test_what_the_version_did_not_change_does_not_count() -> None:
    job = Job()
    job.report(TaskState.FAILED, "A_0", "C_0", reason="it was so before")
    job.report(TaskState.RUNNING, "B_0")
    assert job.look(STEADY_S) == Confirmed()


def test_what_is_reported_of_a_former_version_does_not_count() -> None:
    job = Job()
    before = next(each for each in replicas(BEFORE) if each.name == "B")
    for state in (TaskState.FAILED, TaskState.RUNNING):
        found = TaskStatus(before.task, state, fingerprint=before.fingerprint)
        job.reported[before.task] = found
        assert job.look(10 * WITHIN_S) is None


def test_version_with_fewer_tasks_is_confirmed_at_once() -> None:
    assert Job(graph("A", "B")).trial.tasks.keys() >= {TaskId("A", 0)}
    two, one = graph("A", "B"), graph("A")
    assert Job(one, two).look() == Confirmed()


def test_paused_tasks_need_not_come_up() -> None:
    wish = WISH.with_paused([], ["B_0"])
    assert Job(wish=wish).look() == Confirmed()


def test_restart_by_a_user_is_part_of_the_trial() -> None:
    job = Job(wish=WISH.with_restarts(["B"]))
    assert [str(task) for task in job.trial.tasks] == ["B_0"]
    job.report(TaskState.RUNNING, "B_0")
    assert job.look(STEADY_S) == Confirmed()


# Who waits.


def test_writers_wait_until_their_new_readers_have_come_up() -> None:
    job = Job(graph("A D C"))
    assert [str(task) for task in job.trial.tasks] == ["A_0", "D_0", "C_0"]
    assert job.trial.held == {"A", "D"}
    job.report(TaskState.STARTING, "C_0")
    job.look()
    assert job.trial.held == {"A", "D"}
    job.report(TaskState.RUNNING, "C_0")
    job.look()
    assert job.trial.held == {"A"}
    job.report(TaskState.RUNNING, "D_0")
    job.look()
    assert job.trial.held == set()
    job.report(TaskState.RESTARTING, "D_0")
    job.look()
    assert job.trial.held == set()


def test_only_what_the_version_changed_waits_or_is_waited_for() -> None:
    assert Job().trial.held == set()
    assert Job(graph("A B C", A=7, C=7)).trial.held == set()
    assert Job(graph("A B C", A=7, B=7)).trial.held == {"A"}


def test_processors_that_send_to_each_other_do_not_wait_for_each_other() -> None:
    assert Job(graph("A B", "B A", B=7, A=7), graph("A B", "B A")).trial.held == set()


def test_nobody_waits_for_a_processor_that_is_paused() -> None:
    job = Job(graph("A B C", A=7, B=7), wish=WISH.with_paused(["B"]))
    assert job.trial.held == set()


def test_next_job_manager_does_not_hold_what_runs_already() -> None:
    job = Job(graph("A B C", A=7, B=7))
    job.report(TaskState.RUNNING, "A_0", "B_0")
    job.trial.note(job.reported)
    assert job.trial.held == set()


# What the core of the JobManager says.


def reported(leader: Leader, *names: str) -> set[str]:
    return {str(task) for task in leader.state.reported([*map(TaskId.parse, names)])}


def test_task_of_a_task_manager_that_is_lost_is_not_reported_until_another_one_has_it() -> None:
    leader = running(tasks(P=1))
    assert reported(leader, "P_0", "P_1", "Q_0") == {"P_0", "P_1"}
    said = silent_for_three_beats(leader, 0)
    assert said
    assert reported(leader, "P_0", "P_1") == {
        str(task) for task in leader.runs[0] if task in leader.state.owners
    }
    leader.come_to_rest(0)
    assert reported(leader, "P_0", "P_1") == {"P_0", "P_1"}


def test_task_that_is_to_be_closed_first_is_not_reported() -> None:
    leader = running(tasks(P=1))
    leader.change(tasks(P=2))
    assert reported(leader, "P_0") == {"P_0"}  # of the former version, as its fingerprint says
    leader.report(0)
    leader.report(1)
    assert reported(leader, "P_0") == set()

"""The JobManager's decisions, event by event."""

from __future__ import annotations

import pytest

from common.messages import (
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    Report,
)
from common.status import TaskState, TaskStatus
from common.tick import Tick
from jobmanager.events import ReignBegan, Reported
from jobmanager.state import JobManagerState
from tests.unit.jobmanager.reign import (
    EPOCH,
    START_MS,
    Reign,
    assigned,
    replica,
    revoked,
    settled,
    status,
    task,
)

# The start.


def test_nothing_is_commanded_before_the_reign_began() -> None:
    state = JobManagerState([replica(0)], 1, 1000)
    said = state.handle(Tick(START_MS))
    said += state.handle(Reported(Report(0, "a", 1, 1)))
    said += state.handle(Tick(START_MS + 60_000))
    assert said == []


def test_report_before_the_first_tick_harms_nobody() -> None:
    state = JobManagerState([replica(0), replica(1)], 2, 1000)
    runs = (status(0), status(1))
    state.handle(ReignBegan(EPOCH))
    said = state.handle(Reported(Report(0, "a", 1, 1, tasks=runs)))
    said += state.handle(Tick(START_MS))
    said += state.handle(Reported(Report(0, "a", 1, 2, tasks=runs)))
    said += state.handle(Tick(START_MS + 1000))
    assert HeartbeatEvent(0, is_up=False) not in said
    assert assigned(said, 0) == []
    assert set(state.owners.values()) == {0}


def test_tasks_are_assigned_as_soon_as_all_taskmanagers_have_come() -> None:
    reign = Reign(tasks=4, tm_number=2)
    reign.report(0)
    assert assigned(reign.tick(), 0) == []
    reign.report(1)
    said = reign.tick()
    assert (assigned(said, 0), assigned(said, 1)) == ([0, 2], [1, 3])


def test_missing_taskmanagers_are_waited_for_three_intervals() -> None:
    reign = Reign(tasks=4, tm_number=2)
    reign.report(0)
    given = []
    for _ in range(13):
        reign.report(0)
        given.append(assigned(reign.tick(250), 0))
    assert given == [[]] * 12 + [[0, 1, 2, 3]]


def test_admitted_taskmanager_gets_an_answer_even_if_there_is_nothing_to_do() -> None:
    reign = settled(tasks=1, tm_number=2, present=[0])
    said = reign.report(1)
    assert Processors(1, "tm1", EPOCH, sequence=1) in said


def test_commands_carry_epoch_incarnation_and_growing_sequences() -> None:
    reign = Reign(tasks=2, tm_number=1)
    said = reign.report(0, incarnation="abc")
    said += reign.tick()
    assert said == [
        Processors(0, "abc", EPOCH, sequence=1),
        Processors(0, "abc", EPOCH, sequence=2, assign=(replica(0), replica(1))),
    ]


def test_more_threads_mean_more_tasks() -> None:
    reign = Reign(tasks=8, tm_number=2)
    reign.report(0, threads=3)
    reign.report(1, threads=1)
    reign.tick()
    assert (len(reign.owned_by(0)), len(reign.owned_by(1))) == (6, 2)


def test_own_heartbeat_tells_the_owners_once_an_interval() -> None:
    reign = settled(tasks=2, tm_number=2)
    beats = []
    for _ in range(8):
        reign.now_ms += 250
        beats += [
            message
            for message in reign.state.handle(Tick(reign.now_ms))
            if isinstance(message, JobManagerBeat)
        ]
    assert [beat.owners for beat in beats] == [{task(0): 0, task(1): 1}] * 2
    assert {beat.epoch for beat in beats} == {EPOCH}


# Who may take part.


def test_id_out_of_range_is_refused() -> None:
    reign = Reign(tasks=1, tm_number=2)
    (said,) = reign.report(2)
    assert isinstance(said, Refused)
    assert "0..1" in said.reason
    assert (said.tm_id, said.incarnation, said.epoch) == (2, "tm2", EPOCH)
    assert reign.state.live == {}


def test_second_taskmanager_with_a_living_id_is_refused_and_disturbs_nothing() -> None:
    reign = settled(tasks=2, tm_number=1)
    (said,) = reign.report(0, [], incarnation="impostor", sequence=0)
    assert isinstance(said, Refused)
    assert said.incarnation == "impostor"
    assert reign.report(0) == []
    assert reign.state.live == {0: "tm0"}


def test_leaving_impostor_does_not_take_the_rightful_one_along() -> None:
    reign = settled(tasks=2, tm_number=1)
    assert reign.report(0, [], incarnation="impostor", leaving=True) == []
    assert reign.state.live == {0: "tm0"}


def test_beats_of_an_impostor_do_not_keep_the_rightful_one_up() -> None:
    reign = settled(tasks=2, tm_number=1)
    said: list[Message] = []
    for _ in range(4):
        said += reign.report(0, [], incarnation="impostor")
        said += reign.tick(1000)
    assert HeartbeatEvent(0, is_up=False) in said


def test_restarted_taskmanager_is_admitted_once_its_predecessor_is_known_dead() -> None:
    reign = settled(tasks=2, tm_number=1)
    for _ in range(3):
        said = reign.report(0, [], incarnation="next", sequence=0, epoch=-1)
        assert [type(message) for message in said] == [Refused]
        said = reign.tick(1000)
    assert said == [HeartbeatEvent(0, is_up=False)]
    said = reign.report(0, [], incarnation="next", sequence=0, epoch=-1)
    assert HeartbeatEvent(0, is_up=True) in said
    assert assigned(reign.tick(), 0) == [0, 1]
    assert reign.state.live == {0: "next"}


# Who is down.


def test_three_missed_beats_move_the_tasks_of_a_taskmanager() -> None:
    reign = settled(tasks=4, tm_number=2)
    said: list[Message] = []
    for _ in range(3):
        assert said == []
        said = [*reign.tick(1000), *reign.report(0)]
    assert HeartbeatEvent(1, is_up=False) in said
    assert assigned(said, 0) == [1, 3]
    assert reign.owned_by(0) == [0, 1, 2, 3]


def test_pause_of_the_jobmanager_is_not_held_against_taskmanagers() -> None:
    reign = settled(tasks=4, tm_number=2)
    said = reign.tick(600_000)
    said += reign.report(0)
    said += reign.report(1)
    said += reign.tick(1000)
    assert said == []


def test_last_taskmanager_down_leaves_tasks_without_owner_until_one_comes() -> None:
    reign = settled(tasks=2, tm_number=1)
    for _ in range(3):
        reign.tick(1000)
    assert reign.owned_by(None) == [0, 1]
    reign.report(0, [], incarnation="next", sequence=0)
    assert assigned(reign.tick(), 0) == [0, 1]


def test_taskmanagers_that_all_were_away_keep_their_tasks_when_they_come_back() -> None:
    reign = settled(tasks=4, tm_number=2)
    for _ in range(3):
        reign.tick(1000)
    assert reign.state.live == {}
    said = reign.report(1)
    said += reign.tick(1000)
    said += reign.report(0)
    for _ in range(4):
        reign.obey(said)
        said += [*reign.tick(1000), *reign.report(0), *reign.report(1)]
    commanded = [m for m in said if isinstance(m, Processors) and (m.assign or m.revoke)]
    assert commanded == []
    assert (reign.owned_by(0), reign.owned_by(1)) == ([0, 2], [1, 3])


def test_report_from_before_the_leave_does_not_bring_a_taskmanager_back() -> None:
    reign = settled(tasks=4, tm_number=2)
    reign.report(1, [], leaving=True)
    assert reign.report(1, [1, 3], beat=reign.beats - 1) == []
    assert reign.state.live == {0: "tm0"}


def test_taskmanagers_that_go_down_together_get_nothing_of_each_other() -> None:
    reign = settled(tasks=6, tm_number=3)
    said: list[Message] = []
    for _ in range(3):
        said += [*reign.tick(1000), *reign.report(2)]
    assert (assigned(said, 0), assigned(said, 1)) == ([], [])
    assert reign.owned_by(2) == [0, 1, 2, 3, 4, 5]


def test_graceful_leave_does_not_wait_for_three_beats() -> None:
    reign = settled(tasks=4, tm_number=2)
    said = reign.report(1, [], leaving=True)
    assert HeartbeatEvent(1, is_up=False) in said
    assert assigned(said, 0) == [1, 3]


def test_leave_of_somebody_unknown_changes_nothing() -> None:
    reign = settled(tasks=4, tm_number=2, present=[0])
    assert reign.report(1, [], leaving=True) == []


def test_old_report_that_arrives_late_is_ignored() -> None:
    reign = settled(tasks=4, tm_number=2)
    assert reign.report(1, [0, 1, 2, 3], beat=1) == []


def test_repeated_report_is_ignored() -> None:
    reign = settled(tasks=2, tm_number=1)
    report = Report(0, "tm0", 1, 1000, EPOCH, reign.sequences[0])
    assert assigned(reign.send(report), 0) == [0, 1]
    assert reign.send(report) == []


# Moves.


def test_late_joiner_gets_its_share_only_after_it_was_given_back() -> None:
    reign = settled(tasks=4, tm_number=2, present=[0])
    said = reign.report(1)
    assert revoked(said, 0) == [2, 3]
    assert assigned(said, 1) == []

    assert reign.report(0, [0, 1, 2, 3], sequence=reign.sequences[0]) == []
    reign.obey(said)
    assert reign.report(0, [0, 1, 2, 3]) == []
    assert assigned(reign.report(0, [0, 1, 3]), 1) == [2]
    assert assigned(reign.report(0, [0, 1]), 1) == [3]


def test_only_what_moves_is_commanded() -> None:
    reign = settled(tasks=4, tm_number=3, present=[0, 1])
    said = reign.report(2)
    touched = revoked(said, 0) + revoked(said, 1)
    assert len(touched) == 1
    assert sum(len(assigned(said, tm_id)) for tm_id in range(3)) == 0


def test_owner_that_goes_down_while_giving_back_frees_the_task() -> None:
    reign = settled(tasks=2, tm_number=2, present=[0])
    reign.obey(reign.report(1))
    said: list[Message] = []
    for _ in range(3):
        said += [*reign.tick(1000), *reign.report(1)]
    assert sorted(assigned(said, 1)) == [0, 1]


def test_task_that_is_not_given_back_is_taken_after_twenty_intervals() -> None:
    reign = settled(tasks=2, tm_number=2, present=[0])
    reign.obey(reign.report(1))
    given = []
    for _ in range(22):
        said = [*reign.tick(1000), *reign.report(0, [0, 1]), *reign.report(1)]
        given.append(assigned(said, 1))
    assert given[:20] == [[]] * 20
    assert [1] in given


def test_target_that_goes_down_before_the_task_is_free_is_replaced() -> None:
    reign = settled(tasks=2, tm_number=2, present=[0])
    reign.obey(reign.report(1))
    for _ in range(3):
        reign.tick(1000)
        assert assigned(reign.report(0, [0, 1]), 1) == []
    said = reign.report(0, [0])
    assert assigned(said, 0) == [1]


# Disagreements are found and ended.


def test_task_that_was_given_up_is_assigned_again() -> None:
    reign = settled(tasks=2, tm_number=1)
    assert assigned(reign.report(0, [0]), 0) == [1]


def test_task_is_not_assigned_twice_while_the_command_is_on_its_way() -> None:
    reign = Reign(tasks=2, tm_number=1)
    reign.report(0)
    assert assigned(reign.tick(), 0) == [0, 1]
    assert reign.report(0, [], sequence=1) == []


def test_number_of_another_reigns_command_confirms_nothing() -> None:
    reign = Reign(tasks=2, tm_number=1)
    reign.report(0)
    assert assigned(reign.tick(), 0) == [0, 1]
    assert reign.report(0, [], sequence=17, epoch=EPOCH - 1) == []


def test_command_that_was_not_carried_out_is_repeated_after_three_intervals() -> None:
    reign = Reign(tasks=2, tm_number=1)
    reign.report(0)
    reign.tick()
    for _ in range(2):
        assert [*reign.tick(1000), *reign.report(0, [], sequence=0)] == []
    said = [*reign.tick(1000), *reign.report(0, [], sequence=0)]
    said += [*reign.tick(1000), *reign.report(0, [], sequence=0)]
    assert assigned(said, 0) == [0, 1]


def test_task_of_somebody_else_is_revoked() -> None:
    reign = settled(tasks=4, tm_number=2)
    said = reign.report(1, [0, 1, 3])
    assert (revoked(said, 1), revoked(said, 0)) == ([0], [])
    assert reign.owned_by(0) == [0, 2]


def test_unknown_task_is_revoked() -> None:
    reign = settled(tasks=1, tm_number=1)
    assert revoked(reign.report(0, [0, 9]), 0) == [9]


def test_stray_task_is_not_revoked_again_in_every_report_while_it_closes() -> None:
    reign = settled(tasks=4, tm_number=2)
    reign.obey(reign.report(1, [0, 1, 3]))
    said = []
    for _ in range(10):
        said += reign.report(1, [0, 1, 3])
    assert said == []


def test_revocation_at_a_stranger_does_not_hide_that_the_owner_lost_the_task() -> None:
    reign = settled(tasks=4, tm_number=2)
    for _ in range(5):
        # tm1's commands are now far ahead of tm0's.
        reign.obey(reign.report(1, [1]))
    reign.obey(reign.report(1, [0, 1, 3]))
    assert assigned(reign.report(0, [2]), 0) == [0]


def test_no_command_names_a_task_twice() -> None:
    reign = Reign(tasks=4, tm_number=2)
    reign.report(0, [0, 1, 2, 3])
    for _ in range(4):
        reign.tick(1000)
    said = [
        *reign.report(1, []),
        *(said for _ in range(4) for said in (*reign.tick(1000), *reign.report(1, []))),
        *reign.tick(),
    ]
    for message in said:
        if isinstance(message, Processors):
            named = [*(entry.task for entry in message.assign), *message.revoke]
            assert len(set(named)) == len(named)
    assert set(assigned(said, 1)) == {0, 1, 2, 3}


@pytest.mark.parametrize("known_epoch", [EPOCH, EPOCH - 1])
def test_returning_taskmanager_is_told_things_under_new_numbers(known_epoch: int) -> None:
    reign = settled(tasks=4, tm_number=2)
    for _ in range(6):
        reign.obey(reign.report(1, [1]))
    used = reign.sequences[1]
    for _ in range(3):
        reign.tick(1000)
        reign.obey(reign.report(0))
    said = reign.report(1, [1, 3], sequence=used - 1, epoch=known_epoch)
    numbers = [m.sequence for m in said if isinstance(m, Processors) and m.tm_id == 1]
    assert numbers
    assert min(numbers) > used


def test_returning_taskmanager_gives_back_what_was_given_to_others() -> None:
    reign = settled(tasks=4, tm_number=2)
    for _ in range(3):
        reign.tick(1000)
        reign.obey(reign.report(0))
    said = reign.report(1)
    assert HeartbeatEvent(1, is_up=True) in said
    assert sorted(revoked(said, 1)) == [1, 3]
    assert assigned(said, 1) == []


# A new reign.


def test_restarted_jobmanager_adopts_what_runs() -> None:
    reign = Reign(tasks=4, tm_number=2)
    said = reign.report(0, [0, 1], epoch=3, sequence=17)
    said += reign.report(1, [2, 3], epoch=3, sequence=9)
    said += reign.tick()
    assert (reign.owned_by(0), reign.owned_by(1)) == ([0, 1], [2, 3])
    assert [(m.assign, m.revoke) for m in said if isinstance(m, Processors)] == [((), ())] * 2


def test_restarted_jobmanager_adopts_late_answers_within_the_first_three_intervals() -> None:
    reign = Reign(tasks=4, tm_number=3)
    reign.report(0, [0, 1])
    reign.tick(1000)
    reign.report(0, [0, 1])
    reign.report(1, [2, 3])
    for _ in range(3):
        reign.tick(1000)
        reign.report(0, [0, 1])
        reign.report(1, [2, 3])
    assert (reign.owned_by(0), reign.owned_by(1)) == ([0, 1], [2, 3])


def test_task_is_adopted_from_the_second_who_runs_it_if_the_first_leaves_in_time() -> None:
    reign = Reign(tasks=1, tm_number=3)
    reign.report(0, [0])
    reign.report(1, [0])
    reign.report(0, [], leaving=True)
    reign.report(1, [0])
    assert reign.owned_by(1) == [0]


def test_task_that_two_run_is_left_to_one_and_revoked_from_the_other() -> None:
    reign = Reign(tasks=2, tm_number=2)
    reign.obey(reign.report(0, [0, 1]))
    said = reign.report(1, [1])
    assert revoked(said, 1) == [1]
    assert reign.owned_by(0) == [0, 1]


def test_failed_task_is_restarted_by_the_next_jobmanager_instead_of_adopted() -> None:
    reign = Reign(tasks=2, tm_number=1)
    statuses = (status(0), status(1, TaskState.FAILED))
    said = reign.send(Report(0, "tm0", 1, 1, EPOCH - 1, 5, tasks=statuses))
    said += reign.tick()
    assert revoked(said, 0) == [1]
    assert assigned(said, 0) == [1]
    order = [m for m in said if isinstance(m, Processors) and (m.assign or m.revoke)]
    assert [bool(m.revoke) for m in order] == [True, False]


def test_task_of_a_changed_pipeline_is_restarted_where_it_was() -> None:
    reign = Reign(tasks=4, tm_number=2)
    old = TaskStatus(task(3), TaskState.RUNNING, fingerprint="of the old pipeline.yaml")
    said = reign.send(Report(0, "tm0", 1, 1, EPOCH - 1, 5, tasks=(status(0), old)))
    said += reign.send(Report(1, "tm1", 1, 1, EPOCH - 1, 5, tasks=(status(1), status(2))))
    said += reign.tick()
    assert (revoked(said, 0), revoked(said, 1)) == ([3], [])
    assert (assigned(said, 0), assigned(said, 1)) == ([3], [])


def test_failed_task_is_left_alone_by_the_jobmanager_that_knows_it() -> None:
    reign = settled(tasks=2, tm_number=1)
    reign.runs[0][task(1)] = TaskState.FAILED
    for _ in range(10):
        assert [*reign.tick(1000), *reign.report(0)] == []


def test_second_reign_of_one_jobmanager_repeats_what_was_lost_between() -> None:
    reign = Reign(tasks=2, tm_number=1)
    reign.obey(reign.report(0))
    reign.tick()  # The assignment is lost: Kafka took no commands.
    reign.epoch += 1
    reign.state.handle(ReignBegan(reign.epoch))
    said: list[Message] = []
    for _ in range(5):
        said += [*reign.tick(1000), *reign.report(0, [], sequence=0)]
    assert assigned(said, 0)[:2] == [0, 1]
    assert all(message.epoch == reign.epoch for message in said if isinstance(message, Processors))


def test_revocation_that_was_lost_between_two_reigns_is_repeated() -> None:
    reign = settled(tasks=2, tm_number=2, present=[0])
    assert revoked(reign.report(1), 0) == [1]  # Kafka did not take it.
    reign.epoch += 1
    said = reign.state.handle(ReignBegan(reign.epoch))
    reign.obey(said)
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [0])
    assert assigned(reign.report(0), 1) == [1]

"""The JobManager's decisions, event by event."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.protocol.messages import (
    HeartbeatEvent,
    JobManagerBeat,
    Message,
    Processors,
    Refused,
    Report,
)
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager.events import LeadershipBegan, Reported
from kafka_pipeline.jobmanager.state import JobManagerState
from tests.unit.jobmanager.leader import (
    EPOCH,
    START_MS,
    Leader,
    assigned,
    replica,
    revoked,
    settled,
    status,
    task,
)

# The start.


def test_nothing_is_commanded_before_the_leadership_began() -> None:
    state = JobManagerState([replica(0)], 1, 1000)
    said = state.handle(Tick(START_MS))
    said += state.handle(Reported(Report(0, "a", 1, 1)))
    said += state.handle(Tick(START_MS + 60_000))
    assert said == []


def test_report_before_the_first_tick_harms_nobody() -> None:
    state = JobManagerState([replica(0), replica(1)], 2, 1000)
    runs = (status(0), status(1))
    state.handle(LeadershipBegan(EPOCH))
    said = state.handle(Reported(Report(0, "a", 1, 1, tasks=runs)))
    said += state.handle(Tick(START_MS))
    said += state.handle(Reported(Report(0, "a", 1, 2, tasks=runs)))
    said += state.handle(Tick(START_MS + 1000))
    assert HeartbeatEvent(0, is_up=False) not in said
    assert assigned(said, 0) == []
    assert set(state.owners.values()) == {0}


def test_tasks_are_assigned_as_soon_as_all_taskmanagers_have_come() -> None:
    leader = Leader(tasks=4, tm_number=2)
    leader.report(0)
    assert assigned(leader.tick(), 0) == []
    leader.report(1)
    said = leader.tick()
    assert (assigned(said, 0), assigned(said, 1)) == ([0, 2], [1, 3])


def test_missing_taskmanagers_are_waited_for_three_intervals() -> None:
    leader = Leader(tasks=4, tm_number=2)
    leader.report(0)
    given = []
    for _ in range(13):
        leader.report(0)
        given.append(assigned(leader.tick(250), 0))
    assert given == [[]] * 12 + [[0, 1, 2, 3]]


def test_admitted_taskmanager_gets_an_answer_even_if_there_is_nothing_to_do() -> None:
    leader = settled(tasks=1, tm_number=2, present=[0])
    said = leader.report(1)
    assert Processors(1, "tm1", EPOCH, sequence=1) in said


def test_commands_carry_epoch_incarnation_and_growing_sequences() -> None:
    leader = Leader(tasks=2, tm_number=1)
    said = leader.report(0, incarnation="abc")
    said += leader.tick()
    assert said == [
        Processors(0, "abc", EPOCH, sequence=1),
        Processors(0, "abc", EPOCH, sequence=2, assign=(replica(0), replica(1))),
    ]


def test_more_threads_mean_more_tasks() -> None:
    leader = Leader(tasks=8, tm_number=2)
    leader.report(0, threads=3)
    leader.report(1, threads=1)
    leader.tick()
    assert (len(leader.owned_by(0)), len(leader.owned_by(1))) == (6, 2)


def test_own_heartbeat_tells_the_owners_once_an_interval() -> None:
    leader = settled(tasks=2, tm_number=2)
    beats = []
    for _ in range(8):
        leader.now_ms += 250
        beats += [
            message
            for message in leader.state.handle(Tick(leader.now_ms))
            if isinstance(message, JobManagerBeat)
        ]
    assert [beat.owners for beat in beats] == [{task(0): 0, task(1): 1}] * 2
    assert {beat.epoch for beat in beats} == {EPOCH}


# Who may take part.


def test_id_out_of_range_is_refused() -> None:
    leader = Leader(tasks=1, tm_number=2)
    (said,) = leader.report(2)
    assert isinstance(said, Refused)
    assert "0..1" in said.reason
    assert (said.tm_id, said.incarnation, said.epoch) == (2, "tm2", EPOCH)
    assert leader.state.live == {}


def test_second_taskmanager_with_a_living_id_is_refused_and_disturbs_nothing() -> None:
    leader = settled(tasks=2, tm_number=1)
    (said,) = leader.report(0, [], incarnation="impostor", sequence=0)
    assert isinstance(said, Refused)
    assert said.incarnation == "impostor"
    assert leader.report(0) == []
    assert leader.state.live == {0: "tm0"}


def test_leaving_impostor_does_not_take_the_rightful_one_along() -> None:
    leader = settled(tasks=2, tm_number=1)
    assert leader.report(0, [], incarnation="impostor", leaving=True) == []
    assert leader.state.live == {0: "tm0"}


def test_beats_of_an_impostor_do_not_keep_the_rightful_one_up() -> None:
    leader = settled(tasks=2, tm_number=1)
    said: list[Message] = []
    for _ in range(4):
        said += leader.report(0, [], incarnation="impostor")
        said += leader.tick(1000)
    assert HeartbeatEvent(0, is_up=False) in said


def test_restarted_taskmanager_is_admitted_once_its_predecessor_is_known_dead() -> None:
    leader = settled(tasks=2, tm_number=1)
    for _ in range(3):
        said = leader.report(0, [], incarnation="next", sequence=0, epoch=-1)
        assert [type(message) for message in said] == [Refused]
        said = leader.tick(1000)
    assert said == [HeartbeatEvent(0, is_up=False)]
    said = leader.report(0, [], incarnation="next", sequence=0, epoch=-1)
    assert HeartbeatEvent(0, is_up=True) in said
    assert assigned(leader.tick(), 0) == [0, 1]
    assert leader.state.live == {0: "next"}


# Who is down.


def test_three_missed_beats_move_the_tasks_of_a_taskmanager() -> None:
    leader = settled(tasks=4, tm_number=2)
    said: list[Message] = []
    for _ in range(3):
        assert said == []
        said = [*leader.tick(1000), *leader.report(0)]
    assert HeartbeatEvent(1, is_up=False) in said
    assert assigned(said, 0) == [1, 3]
    assert leader.owned_by(0) == [0, 1, 2, 3]


def test_pause_of_the_jobmanager_is_not_held_against_taskmanagers() -> None:
    leader = settled(tasks=4, tm_number=2)
    said = leader.tick(600_000)
    said += leader.report(0)
    said += leader.report(1)
    said += leader.tick(1000)
    assert said == []


def test_last_taskmanager_down_leaves_tasks_without_owner_until_one_comes() -> None:
    leader = settled(tasks=2, tm_number=1)
    for _ in range(3):
        leader.tick(1000)
    assert leader.owned_by(None) == [0, 1]
    leader.report(0, [], incarnation="next", sequence=0)
    assert assigned(leader.tick(), 0) == [0, 1]


def test_taskmanagers_that_all_were_away_keep_their_tasks_when_they_come_back() -> None:
    leader = settled(tasks=4, tm_number=2)
    for _ in range(3):
        leader.tick(1000)
    assert leader.state.live == {}
    said = leader.report(1)
    said += leader.tick(1000)
    said += leader.report(0)
    for _ in range(4):
        leader.carry_out(said)
        said += [*leader.tick(1000), *leader.report(0), *leader.report(1)]
    commanded = [m for m in said if isinstance(m, Processors) and (m.assign or m.revoke)]
    assert commanded == []
    assert (leader.owned_by(0), leader.owned_by(1)) == ([0, 2], [1, 3])


def test_report_from_before_the_leave_does_not_bring_a_taskmanager_back() -> None:
    leader = settled(tasks=4, tm_number=2)
    leader.report(1, [], leaving=True)
    assert leader.report(1, [1, 3], beat=leader.beats - 1) == []
    assert leader.state.live == {0: "tm0"}


def test_taskmanagers_that_go_down_together_get_nothing_of_each_other() -> None:
    leader = settled(tasks=6, tm_number=3)
    said: list[Message] = []
    for _ in range(3):
        said += [*leader.tick(1000), *leader.report(2)]
    assert (assigned(said, 0), assigned(said, 1)) == ([], [])
    assert leader.owned_by(2) == [0, 1, 2, 3, 4, 5]


def test_graceful_leave_does_not_wait_for_three_beats() -> None:
    leader = settled(tasks=4, tm_number=2)
    said = leader.report(1, [], leaving=True)
    assert HeartbeatEvent(1, is_up=False) in said
    assert assigned(said, 0) == [1, 3]


def test_leave_of_somebody_unknown_changes_nothing() -> None:
    leader = settled(tasks=4, tm_number=2, present=[0])
    assert leader.report(1, [], leaving=True) == []


def test_old_report_that_arrives_late_is_ignored() -> None:
    leader = settled(tasks=4, tm_number=2)
    assert leader.report(1, [0, 1, 2, 3], beat=1) == []


def test_repeated_report_is_ignored() -> None:
    leader = settled(tasks=2, tm_number=1)
    report = Report(0, "tm0", 1, 1000, EPOCH, leader.sequences[0])
    assert assigned(leader.send(report), 0) == [0, 1]
    assert leader.send(report) == []


# Moves.


def test_late_joiner_gets_its_share_only_after_it_was_given_back() -> None:
    leader = settled(tasks=4, tm_number=2, present=[0])
    said = leader.report(1)
    assert revoked(said, 0) == [2, 3]
    assert assigned(said, 1) == []

    assert leader.report(0, [0, 1, 2, 3], sequence=leader.sequences[0]) == []
    leader.carry_out(said)
    assert leader.report(0, [0, 1, 2, 3]) == []
    assert assigned(leader.report(0, [0, 1, 3]), 1) == [2]
    assert assigned(leader.report(0, [0, 1]), 1) == [3]


def test_only_what_moves_is_commanded() -> None:
    leader = settled(tasks=4, tm_number=3, present=[0, 1])
    said = leader.report(2)
    touched = revoked(said, 0) + revoked(said, 1)
    assert len(touched) == 1
    assert sum(len(assigned(said, tm_id)) for tm_id in range(3)) == 0


def test_owner_that_goes_down_while_giving_back_frees_the_task() -> None:
    leader = settled(tasks=2, tm_number=2, present=[0])
    leader.carry_out(leader.report(1))
    said: list[Message] = []
    for _ in range(3):
        said += [*leader.tick(1000), *leader.report(1)]
    assert sorted(assigned(said, 1)) == [0, 1]


def test_task_that_is_not_given_back_is_taken_after_twenty_intervals() -> None:
    leader = settled(tasks=2, tm_number=2, present=[0])
    leader.carry_out(leader.report(1))
    given = []
    for _ in range(22):
        said = [*leader.tick(1000), *leader.report(0, [0, 1]), *leader.report(1)]
        given.append(assigned(said, 1))
    assert given[:20] == [[]] * 20
    assert [1] in given


def test_target_that_goes_down_before_the_task_is_free_is_replaced() -> None:
    leader = settled(tasks=2, tm_number=2, present=[0])
    leader.carry_out(leader.report(1))
    for _ in range(3):
        leader.tick(1000)
        assert assigned(leader.report(0, [0, 1]), 1) == []
    said = leader.report(0, [0])
    assert assigned(said, 0) == [1]


# Disagreements are found and ended.


def test_task_that_was_given_up_is_assigned_again() -> None:
    leader = settled(tasks=2, tm_number=1)
    assert assigned(leader.report(0, [0]), 0) == [1]


def test_task_is_not_assigned_twice_while_the_command_is_on_its_way() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.report(0)
    assert assigned(leader.tick(), 0) == [0, 1]
    assert leader.report(0, [], sequence=1) == []


def test_number_of_another_leaderships_command_confirms_nothing() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.report(0)
    assert assigned(leader.tick(), 0) == [0, 1]
    assert leader.report(0, [], sequence=17, epoch=EPOCH - 1) == []


def test_command_that_was_not_carried_out_is_repeated_after_three_intervals() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.report(0)
    leader.tick()
    for _ in range(2):
        assert [*leader.tick(1000), *leader.report(0, [], sequence=0)] == []
    said = [*leader.tick(1000), *leader.report(0, [], sequence=0)]
    said += [*leader.tick(1000), *leader.report(0, [], sequence=0)]
    assert assigned(said, 0) == [0, 1]


def test_report_that_was_written_before_a_command_proves_nothing_however_late_it_is_read() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.report(0)
    leader.tick()
    leader.now_ms += 10_000  # writing the command took so long
    for _ in range(2):
        assert [*leader.report(0, [], sequence=0), *leader.tick(1000)] == []


def test_repetitions_have_ever_more_time_until_one_is_carried_out() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.report(0)
    leader.tick()

    def waits(beats: int) -> list[int]:
        """Return the heartbeats between repetitions."""
        found, since = [], 0
        for _ in range(beats):
            since += 1
            for message in [*leader.tick(1000), *leader.report(0, [], sequence=0)]:
                assert isinstance(message, Processors)
                assert assigned([message], 0) == [0, 1]
                leader.sequences[0] = message.sequence
                found.append(since)
                since = 0
        return found

    assert waits(25) == [3, 6, 12]
    leader.report(0, [0, 1])
    assert assigned(leader.report(0, []), 0) == [0, 1], "it gave them up"
    assert waits(10) == [3, 6]


def test_taskmanager_that_is_down_is_told_that_its_tasks_belong_to_others() -> None:
    leader = settled(tasks=4, tm_number=2)
    said: list[Message] = []
    for _ in range(4):
        said += [*leader.tick(1000), *leader.report(0)]
    assert revoked(said, 1) == [1, 3]
    assert assigned(said, 0) == [1, 3]
    (farewell,) = [m for m in said if isinstance(m, Processors) and m.tm_id == 1]
    assert (farewell.incarnation, farewell.assign) == ("tm1", ())
    assert farewell.sequence == leader.sequences[1] + 1


def test_the_last_taskmanager_is_told_nothing_as_nobody_gets_its_tasks() -> None:
    leader = settled(tasks=2, tm_number=1)
    said = [message for _ in range(5) for message in leader.tick(1000)]
    assert said == [HeartbeatEvent(0, is_up=False)]


def test_task_of_somebody_else_is_revoked() -> None:
    leader = settled(tasks=4, tm_number=2)
    said = leader.report(1, [0, 1, 3])
    assert (revoked(said, 1), revoked(said, 0)) == ([0], [])
    assert leader.owned_by(0) == [0, 2]


def test_unknown_task_is_revoked() -> None:
    leader = settled(tasks=1, tm_number=1)
    assert revoked(leader.report(0, [0, 9]), 0) == [9]


def test_unexpected_task_is_not_revoked_again_in_every_report_while_it_closes() -> None:
    leader = settled(tasks=4, tm_number=2)
    leader.carry_out(leader.report(1, [0, 1, 3]))
    said = []
    for _ in range(10):
        said += leader.report(1, [0, 1, 3])
    assert said == []


def test_revocation_at_a_stranger_does_not_hide_that_the_owner_lost_the_task() -> None:
    leader = settled(tasks=4, tm_number=2)
    for _ in range(5):
        # tm1's commands are now far ahead of tm0's.
        leader.carry_out(leader.report(1, [1]))
    leader.carry_out(leader.report(1, [0, 1, 3]))
    assert assigned(leader.report(0, [2]), 0) == [0]


def test_no_command_names_a_task_twice() -> None:
    leader = Leader(tasks=4, tm_number=2)
    leader.report(0, [0, 1, 2, 3])
    for _ in range(4):
        leader.tick(1000)
    said = [
        *leader.report(1, []),
        *(said for _ in range(4) for said in (*leader.tick(1000), *leader.report(1, []))),
        *leader.tick(),
    ]
    for message in said:
        if isinstance(message, Processors):
            named = [*(entry.task for entry in message.assign), *message.revoke]
            assert len(set(named)) == len(named)
    assert set(assigned(said, 1)) == {0, 1, 2, 3}


@pytest.mark.parametrize("known_epoch", [EPOCH, EPOCH - 1])
def test_returning_taskmanager_is_told_things_under_new_numbers(known_epoch: int) -> None:
    leader = settled(tasks=4, tm_number=2)
    for _ in range(6):
        leader.carry_out(leader.report(1, [1]))
    used = leader.sequences[1]
    for _ in range(3):
        leader.tick(1000)
        leader.carry_out(leader.report(0))
    said = leader.report(1, [1, 3], sequence=used - 1, epoch=known_epoch)
    numbers = [m.sequence for m in said if isinstance(m, Processors) and m.tm_id == 1]
    assert numbers
    assert min(numbers) > used


def test_returning_taskmanager_gives_back_what_was_given_to_others() -> None:
    leader = settled(tasks=4, tm_number=2)
    for _ in range(3):
        leader.tick(1000)
        leader.carry_out(leader.report(0))
    said = leader.report(1)
    assert HeartbeatEvent(1, is_up=True) in said
    leader.carry_out(said)
    said = leader.report(1, [1, 3])
    assert sorted(revoked(said, 1)) == [1, 3], "it was told so before, but that was lost"
    assert assigned(said, 1) == []


# A new leader.


def test_restarted_jobmanager_adopts_what_runs() -> None:
    leader = Leader(tasks=4, tm_number=2)
    said = leader.report(0, [0, 1], epoch=3, sequence=17)
    said += leader.report(1, [2, 3], epoch=3, sequence=9)
    said += leader.tick()
    assert (leader.owned_by(0), leader.owned_by(1)) == ([0, 1], [2, 3])
    assert [(m.assign, m.revoke) for m in said if isinstance(m, Processors)] == [((), ())] * 2


def test_restarted_jobmanager_adopts_late_answers_within_the_first_three_intervals() -> None:
    leader = Leader(tasks=4, tm_number=3)
    leader.report(0, [0, 1])
    leader.tick(1000)
    leader.report(0, [0, 1])
    leader.report(1, [2, 3])
    for _ in range(3):
        leader.tick(1000)
        leader.report(0, [0, 1])
        leader.report(1, [2, 3])
    assert (leader.owned_by(0), leader.owned_by(1)) == ([0, 1], [2, 3])


def test_task_is_adopted_from_the_second_who_runs_it_if_the_first_leaves_in_time() -> None:
    leader = Leader(tasks=1, tm_number=3)
    leader.report(0, [0])
    leader.report(1, [0])
    leader.report(0, [], leaving=True)
    leader.report(1, [0])
    assert leader.owned_by(1) == [0]


def test_task_that_two_run_is_left_to_one_and_revoked_from_the_other() -> None:
    leader = Leader(tasks=2, tm_number=2)
    leader.carry_out(leader.report(0, [0, 1]))
    said = leader.report(1, [1])
    assert revoked(said, 1) == [1]
    assert leader.owned_by(0) == [0, 1]


def test_failed_task_is_restarted_by_the_next_jobmanager_instead_of_adopted() -> None:
    leader = Leader(tasks=2, tm_number=1)
    statuses = (status(0), status(1, TaskState.FAILED))
    said = leader.send(Report(0, "tm0", 1, 1, EPOCH - 1, 5, tasks=statuses))
    said += leader.tick()
    assert revoked(said, 0) == [1]
    assert assigned(said, 0) == [1]
    order = [m for m in said if isinstance(m, Processors) and (m.assign or m.revoke)]
    assert [bool(m.revoke) for m in order] == [True, False]


def test_task_of_a_changed_pipeline_is_restarted_where_it_was() -> None:
    leader = Leader(tasks=4, tm_number=2)
    old = TaskStatus(task(3), TaskState.RUNNING, fingerprint="of the old pipeline.yaml")
    said = leader.send(Report(0, "tm0", 1, 1, EPOCH - 1, 5, tasks=(status(0), old)))
    said += leader.send(Report(1, "tm1", 1, 1, EPOCH - 1, 5, tasks=(status(1), status(2))))
    said += leader.tick()
    assert (revoked(said, 0), revoked(said, 1)) == ([3], [])
    assert (assigned(said, 0), assigned(said, 1)) == ([3], [])


def test_failed_task_is_left_alone_by_the_jobmanager_that_knows_it() -> None:
    leader = settled(tasks=2, tm_number=1)
    leader.runs[0][task(1)] = TaskState.FAILED
    for _ in range(10):
        assert [*leader.tick(1000), *leader.report(0)] == []


def test_second_leadership_of_one_jobmanager_repeats_what_was_lost_between() -> None:
    leader = Leader(tasks=2, tm_number=1)
    leader.carry_out(leader.report(0))
    leader.tick()  # The assignment is lost: Kafka took no commands.
    leader.epoch += 1
    leader.state.handle(LeadershipBegan(leader.epoch))
    said: list[Message] = []
    for _ in range(5):
        said += [*leader.tick(1000), *leader.report(0, [], sequence=0)]
    assert assigned(said, 0)[:2] == [0, 1]
    assert all(message.epoch == leader.epoch for message in said if isinstance(message, Processors))


def test_revocation_that_was_lost_between_two_leaderships_is_repeated() -> None:
    leader = settled(tasks=2, tm_number=2, present=[0])
    assert revoked(leader.report(1), 0) == [1]  # Kafka did not take it.
    leader.epoch += 1
    said = leader.state.handle(LeadershipBegan(leader.epoch))
    leader.carry_out(said)
    assert (revoked(said, 0), assigned(said, 0)) == ([1], [0])
    assert assigned(leader.report(0), 1) == [1]

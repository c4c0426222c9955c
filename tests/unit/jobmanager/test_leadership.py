"""Which JobManager leads: take over, yield, answer rivals, step down."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafka_pipeline.common.tick import Tick
from kafka_pipeline.jobmanager.leadership import (
    MOST_RETRY_MS,
    RETRY_MS,
    RIVAL_WAIT_MS,
    STEADY_MS,
    Command,
    Event,
    Leadership,
    LeaderState,
    LeaderStopRequested,
    SayGoodbye,
    SosRead,
    SosWritten,
    StepDown,
    TakeOver,
    WriteFailed,
    WriteFenced,
    WriteSos,
)

START_MS = 300_000


def after(*events: Event) -> tuple[Leadership, list[Command]]:
    """Return a leadership that has lived through these, and what it wanted last."""
    leadership = Leadership("me")
    commands: list[Command] = []
    for event in events:
        commands = leadership.handle(event)
    return leadership, commands


LEADING = (Tick(START_MS), SosWritten(7))


def test_candidate_takes_over_at_its_first_tick() -> None:
    leadership, commands = after(Tick(START_MS))
    assert commands == [TakeOver()]
    assert leadership.state is LeaderState.CANDIDATE


def test_it_leads_with_the_epoch_of_its_sos() -> None:
    leadership, commands = after(*LEADING, Tick(START_MS + 1000))
    assert (leadership.state, leadership.epoch, commands) == (LeaderState.LEADING, 7, [])


def test_candidate_whose_take_over_fails_tries_again_after_a_pause() -> None:
    leadership, _ = after(Tick(START_MS), WriteFailed())
    later = range(START_MS + 100, START_MS + 100 + RETRY_MS + 1, RETRY_MS // 4)
    wanted = [leadership.handle(Tick(now_ms)) for now_ms in later]
    assert wanted == [[], [], [], [], [TakeOver()]]


def test_leader_whose_write_fails_takes_over_again_at_the_next_tick() -> None:
    leadership, commands = after(*LEADING, WriteFailed())
    assert (leadership.state, commands) == (LeaderState.CANDIDATE, [])
    assert leadership.handle(Tick(START_MS + 50)) == [TakeOver()]


def take_overs(leadership: Leadership, from_ms: int, for_ms: int) -> list[int]:
    """Return when it takes over, if each `sos` is taken and what follows is not."""
    found = []
    for now_ms in range(from_ms, from_ms + for_ms, 50):
        if leadership.handle(Tick(now_ms)) == [TakeOver()]:
            found.append(now_ms)
            leadership.handle(SosWritten(len(found)))
            leadership.handle(WriteFailed())
    return found


def test_leader_whose_commands_are_refused_again_and_again_takes_over_ever_more_seldom() -> None:
    times = take_overs(Leadership("me"), START_MS, 600_000)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    # The wait begins with the tick after the failure.
    assert [pause - 50 for pause in pauses[:8]] == [
        *(0, RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS, 16 * RETRY_MS),
        *(MOST_RETRY_MS, MOST_RETRY_MS),
    ]


def test_leader_that_has_led_for_long_retries_at_once_whatever_failed_before() -> None:
    leadership = Leadership("me")
    take_overs(leadership, START_MS, 20_000)
    later_ms = START_MS + 20_000 + MOST_RETRY_MS
    assert leadership.handle(Tick(later_ms)) == [TakeOver()]
    for event in (SosWritten(99), Tick(later_ms), Tick(later_ms + STEADY_MS), WriteFailed()):
        leadership.handle(event)
    assert leadership.handle(Tick(later_ms + STEADY_MS + 50)) == [TakeOver()]


def test_fenced_leader_waits_for_a_rivals_sos_and_takes_over_if_there_is_none() -> None:
    leadership, _ = after(*LEADING, WriteFenced())
    assert leadership.state is LeaderState.YIELDING
    assert leadership.handle(Tick(START_MS + 100)) == []
    assert leadership.handle(Tick(START_MS + 100 + RIVAL_WAIT_MS - 1)) == []
    assert leadership.handle(Tick(START_MS + 100 + RIVAL_WAIT_MS)) == [TakeOver()]


def test_write_that_blocked_for_long_does_not_shorten_the_wait_for_a_rival() -> None:
    leadership, _ = after(*LEADING, WriteFenced())
    assert leadership.handle(Tick(START_MS + 60_000)) == []


def test_fenced_leader_steps_down_for_the_author_of_a_newer_sos() -> None:
    leadership, commands = after(*LEADING, WriteFenced(), SosRead(9, "rival"))
    assert (leadership.state, commands) == (LeaderState.SUPERSEDED, [StepDown(9)])


def test_fenced_candidate_yields_too() -> None:
    leadership, _ = after(Tick(START_MS), WriteFenced())
    assert leadership.state is LeaderState.YIELDING


def test_candidate_steps_down_for_the_author_of_a_newer_sos() -> None:
    _, commands = after(Tick(START_MS), WriteFailed(), SosRead(9, "rival"))
    assert commands == [StepDown(9)]


def test_leader_answers_a_newer_sos_and_leads_on_if_that_is_taken() -> None:
    leadership, commands = after(*LEADING, SosRead(9, "forger"))
    assert commands == [WriteSos()]
    assert leadership.handle(SosWritten(10)) == []
    assert (leadership.state, leadership.epoch) == (LeaderState.LEADING, 10)


def test_leader_whose_answer_is_fenced_steps_down() -> None:
    leadership, commands = after(*LEADING, SosRead(9, "rival"), WriteFenced())
    assert (leadership.state, commands) == (LeaderState.SUPERSEDED, [StepDown(9)])


def test_leader_whose_answer_fails_takes_over_again() -> None:
    leadership, commands = after(*LEADING, SosRead(9, "rival"), WriteFailed())
    assert (leadership.state, commands) == (LeaderState.CANDIDATE, [])
    assert leadership.handle(Tick(START_MS + 50)) == [TakeOver()]


def test_fence_after_an_answer_that_was_taken_is_not_held_for_the_rivals() -> None:
    leadership, commands = after(*LEADING, SosRead(9, "forger"), SosWritten(10), WriteFenced())
    assert (leadership.state, commands) == (LeaderState.YIELDING, [])


def test_older_sos_and_its_own_change_nothing() -> None:
    leadership, commands = after(*LEADING, SosRead(6, "former"))
    assert commands == []
    assert leadership.handle(SosRead(7, "me")) == []
    assert leadership.state is LeaderState.LEADING


def test_leader_answers_a_copy_of_its_own_sos_since_task_managers_follow_its_epoch() -> None:
    leadership, commands = after(*LEADING, SosRead(9, "me"))
    assert commands == [WriteSos()]
    assert leadership.handle(SosWritten(10)) == []
    assert (leadership.state, leadership.epoch) == (LeaderState.LEADING, 10)


def test_own_sos_of_a_write_with_an_unknown_outcome_is_not_answered() -> None:
    _, commands = after(*LEADING, WriteFailed(), SosRead(9, "me"))
    assert commands == []


def test_nothing_is_wanted_of_one_that_has_stepped_down() -> None:
    leadership, _ = after(*LEADING, SosRead(9, "rival"), WriteFenced())
    for event in (Tick(START_MS + 60_000), SosRead(11, "third"), SosWritten(12), WriteFailed()):
        assert leadership.handle(event) == []
    assert leadership.state is LeaderState.SUPERSEDED


def test_leader_that_is_stopped_says_goodbye_and_does_nothing_more() -> None:
    leadership, commands = after(*LEADING, LeaderStopRequested())
    assert (leadership.state, commands) == (LeaderState.STOPPED, [SayGoodbye(7)])
    later = (Tick(START_MS + 60_000), SosRead(9, "other"), WriteFenced(), LeaderStopRequested())
    assert [leadership.handle(event) for event in later] == [[]] * 4
    assert leadership.state is LeaderState.STOPPED


@pytest.mark.parametrize(
    "events",
    [(), (Tick(START_MS),), (*LEADING, WriteFenced()), (*LEADING, WriteFailed())],
    ids=["new", "candidate", "yielding", "without a writer"],
)
def test_job_manager_that_does_not_lead_stops_without_a_word(events: tuple[Event, ...]) -> None:
    leadership, commands = after(*events, LeaderStopRequested())
    assert (leadership.state, commands) == (LeaderState.STOPPED, [])

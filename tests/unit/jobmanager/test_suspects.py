"""What a task did when workers ended goes with it to its next owner."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.protocol.messages import Message, ProcessorReplica, Processors, Report
from kafka_pipeline.common.protocol.suspects import CallKind, Suspect
from tests.unit.jobmanager.leader import Leader, settled, status

CALL = Suspect(CallKind.PROCESS, "in", 0, 7, 7)


def report(leader: Leader, *suspects: Suspect) -> None:
    """Have the owner of the task report it, with or without suspects."""
    leader.beats += 1
    told = replace(status(0), suspects=suspects)
    sequence = leader.sequences[0]
    leader.send(Report(0, "tm0", 1, leader.beats, leader.epoch, sequence, tasks=(told,)))


def given(said: list[Message]) -> list[ProcessorReplica]:
    return [each for m in said if isinstance(m, Processors) for each in m.assign]


def lose_owner(leader: Leader) -> list[Message]:
    """Let tm0 leave; tm1 stays. Return what is commanded."""
    return leader.report(0, leaving=True)


def test_next_owner_gets_the_suspects_of_the_last() -> None:
    leader = settled(1, tm_number=2)
    report(leader, CALL)
    (replica,) = given(lose_owner(leader))
    assert replica.suspects == (CALL,)
    assert replica.fingerprint == status(0).fingerprint


def test_suspects_that_the_owner_has_cleared_are_forgotten() -> None:
    leader = settled(1, tm_number=2)
    report(leader, CALL)
    report(leader)
    (replica,) = given(lose_owner(leader))
    assert replica.suspects == ()


def test_suspects_are_given_again_to_an_owner_that_comes_back() -> None:
    leader = settled(1, tm_number=1)
    report(leader, CALL)
    lose_owner(leader)
    leader.runs[0] = {}
    leader.sequences[0] = 0
    said = leader.report(0, incarnation="next")
    said += leader.tick(10_000)
    (replica,) = given(said)
    assert replica.suspects == (CALL,)

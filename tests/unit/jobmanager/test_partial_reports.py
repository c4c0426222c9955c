"""Reports that add to others: the JobManager acts on what it has read, never on a part of it."""

from __future__ import annotations

from dataclasses import replace

from kafka_pipeline.common.protocol.messages import (
    HeartbeatEvent,
    Message,
    Processors,
    Refused,
    Report,
    ReportRequest,
)
from kafka_pipeline.common.protocol.status import TaskState
from kafka_pipeline.common.tasks import TaskId
from tests.unit.jobmanager.leader import EPOCH, Leader, assigned, revoked, settled, status, task


class Reporting:
    """A TaskManager that writes reports of its own; `beat` is that of the last one."""

    def __init__(self, leader: Leader, tm_id: int = 0, incarnation: str = "") -> None:
        self.leader = leader
        self.tm_id = tm_id
        self.incarnation = incarnation or f"tm{tm_id}"
        self.beat = 1000
        self.base = -1

    def full(self, *partitions: int) -> list[Message]:
        """Report everything."""
        self.base = self.beat + 1
        return self._send(None, partitions, ())

    def adds(self, *partitions: int, closed: tuple[int, ...] = ()) -> list[Message]:
        """Report what has changed since the last full report."""
        return self._send(self.base, partitions, closed)

    def misses_full(self) -> None:
        """Write a full report that gets lost."""
        self.beat += 1
        self.base = self.beat

    def _send(
        self, base: int | None, partitions: tuple[int, ...], closed: tuple[int, ...]
    ) -> list[Message]:
        self.beat += 1
        return self.leader.send(
            Report(
                self.tm_id,
                self.incarnation,
                1,
                self.beat,
                self.leader.epoch,
                self.leader.sequences.get(self.tm_id, 0),
                tasks=tuple(map(status, partitions)),
                base=base,
                closed=tuple(map(task, closed)),
            )
        )


def test_task_is_still_run_if_a_report_says_nothing_of_it() -> None:
    tm = Reporting(settled(tasks=3, tm_number=1))
    assert tm.full(0, 1, 2) == []
    assert tm.adds() == []
    assert tm.adds(1) == []


def test_task_that_a_report_says_is_closed_is_given_back() -> None:
    tm = Reporting(settled(tasks=3, tm_number=1))
    tm.full(0, 1, 2)
    assert assigned(tm.adds(closed=(1,)), 0) == [1]


def test_unexpected_task_that_a_report_adds_is_revoked() -> None:
    tm = Reporting(settled(tasks=3, tm_number=1))
    tm.full(0, 1, 2)
    assert revoked(tm.adds(9), 0) == [9]


def test_report_that_adds_to_a_missed_one_gives_nothing_back_and_a_full_one_is_asked_for() -> None:
    tm = Reporting(settled(tasks=3, tm_number=1))
    tm.full(0, 1, 2)
    tm.misses_full()
    said = tm.adds(closed=(1,))
    assert said == [ReportRequest(0, "tm0", EPOCH)]
    assert assigned(tm.full(0, 2), 0) == [1]


def test_report_that_cannot_be_read_confirms_no_command() -> None:
    """Its sequence would be compared with the tasks of an older report."""
    leader = settled(tasks=4, tm_number=2, present=[0])
    tm = Reporting(leader)
    tm.full(0, 1, 2, 3)
    said = leader.report(1)
    assert revoked(said, 0) == [2, 3]
    leader.carry_out(said)
    tm.misses_full()
    assert assigned(tm.adds(closed=(2, 3)), 1) == []
    assert assigned(tm.full(0, 1), 1) == [2, 3]


def test_report_that_cannot_be_read_is_a_sign_of_life_all_the_same() -> None:
    leader = settled(tasks=3, tm_number=1)
    tm = Reporting(leader)
    tm.full(0, 1, 2)
    tm.misses_full()
    said = []
    for _ in range(6):
        said += [*leader.tick(1000), *tm.adds()]
    assert HeartbeatEvent(0, is_up=False) not in said
    assert leader.owned_by(0) == [0, 1, 2]


def test_full_report_is_asked_for_once_a_heartbeat() -> None:
    leader = settled(tasks=3, tm_number=1)
    tm = Reporting(leader)
    tm.full(0, 1, 2)
    tm.misses_full()
    said = []
    for _ in range(12):
        said += [*tm.adds(), *leader.tick(250)]
    assert [type(message) for message in said] == [ReportRequest] * 3


def test_full_report_that_comes_late_is_read_and_those_after_it_again() -> None:
    """Introductions and heartbeats have topics of their own, which are read in any order."""
    leader = settled(tasks=3, tm_number=1)
    tm = Reporting(leader)
    tm.full(0, 1, 2)
    late = replace(
        Report(0, "tm0", 1, tm.beat + 1, EPOCH, leader.sequences[0]),
        tasks=(status(0), status(2)),
    )
    tm.misses_full()
    tm.adds(closed=(0,))
    assert assigned(leader.send(late), 0) == [1]
    leader.carry_out([Processors(0, "tm0", EPOCH, leader.sequences[0] + 1)])
    assert assigned(tm.adds(1, closed=(0,)), 0) == [0]


def test_late_report_does_not_undo_a_newer_one() -> None:
    leader = settled(tasks=3, tm_number=1)
    tm = Reporting(leader)
    tm.full(0, 1, 2)
    late = Report(
        0, "tm0", 1, tm.beat + 1, EPOCH, leader.sequences[0], base=tm.base, closed=(task(1),)
    )
    tm.beat += 1
    tm.adds(0)
    assert leader.send(late) == []


def test_unknown_taskmanager_takes_part_when_its_full_report_has_come() -> None:
    leader = settled(tasks=3, tm_number=2, present=[0])
    tm = Reporting(leader, 1, "joiner")
    tm.misses_full()
    assert tm.adds() == [ReportRequest(1, "joiner", EPOCH)]
    assert leader.state.live == {0: "tm0"}
    assert Processors(1, "joiner", EPOCH, 1) in tm.full()
    assert leader.state.live == {0: "tm0", 1: "joiner"}


def test_taskmanager_that_was_taken_for_dead_is_asked_what_it_runs() -> None:
    leader = settled(tasks=4, tm_number=2)
    tm = Reporting(leader, 1)
    tm.full(1, 3)
    for _ in range(3):
        leader.carry_out([*leader.tick(1000), *leader.report(0)])
    assert tm.adds() == [ReportRequest(1, "tm1", EPOCH)]
    assert sorted(revoked(tm.full(1, 3), 1)) == [1, 3]


def test_impostor_is_refused_whatever_its_report_adds_to() -> None:
    tm = Reporting(settled(tasks=3, tm_number=1), incarnation="impostor")
    tm.misses_full()
    assert [type(message) for message in tm.adds()] == [Refused]


def test_requests_to_many_processes_are_not_remembered_forever() -> None:
    leader = settled(tasks=1, tm_number=2, present=[0])
    for number in range(1500):
        tm = Reporting(leader, 1, f"process {number}")
        tm.misses_full()
        assert tm.adds() == [ReportRequest(1, f"process {number}", EPOCH)]
    assert len(leader.state._asked_ms) == 1000


def test_failed_state_is_known_though_a_report_in_between_was_missed() -> None:
    leader = settled(tasks=2, tm_number=1)
    tm = Reporting(leader)
    tm.full(0, 1)
    failed = replace(status(0), state=TaskState.FAILED)
    leader.send(
        Report(
            0,
            "tm0",
            1,
            tm.beat + 5,
            EPOCH,
            leader.sequences[0],
            tasks=(failed,),
            base=tm.base,
            closed=(TaskId("P", 7),),
        )
    )
    assert leader.state._managers[0].runs.tasks[task(0)].state is TaskState.FAILED
    assert leader.owned_by(0) == [0, 1]

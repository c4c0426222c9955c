"""Golden transcripts: what the managers say to each other, byte for byte, situation by situation.

After a change that is meant: `pytest tests/transcripts --rewrite-transcripts`, then read the diff.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transcripts.conversation import Conversation, JobManager, TaskManager

FOLDER = Path(__file__).parent


def first_start() -> Conversation:
    talk = Conversation(tm_number=2)
    talk.say("two TaskManagers wait; nobody has said sos yet")
    talk.start_taskmanager("tm0", 0, threads=2)
    talk.start_taskmanager("tm1", 1, threads=1)
    talk.run(2)
    talk.say("the JobManager starts")
    talk.start_jobmanager()
    talk.run(6)
    return talk


def settled() -> tuple[Conversation, TaskManager, TaskManager]:
    """Return a conversation whose start is over, and off the record."""
    talk = Conversation(tm_number=3)
    talk.start_jobmanager()
    first = talk.start_taskmanager("tm0", 0, threads=1)
    second = talk.start_taskmanager("tm1", 1, threads=1)
    talk.run(10)
    talk.wire.lines.clear()
    return talk, first, second


def late_joiner() -> Conversation:
    talk, *_ = settled()
    talk.say("tm2 joins two others that run all tasks")
    talk.start_taskmanager("tm2", 2, threads=1)
    talk.run(6)
    return talk


def down_then_reassigned() -> Conversation:
    talk, _, second = settled()
    talk.say("tm1 is killed")
    talk.kill(second)
    talk.run(8)
    return talk


def paused_taskmanager_returns() -> Conversation:
    talk, _, second = settled()
    talk.say("tm1 is paused for six intervals")
    second.paused = True
    talk.run(6)
    talk.say("tm1 goes on")
    second.paused = False
    talk.run(6)
    return talk


def killed_taskmanager_returns_as_another_process() -> Conversation:
    talk, _, second = settled()
    talk.say("tm1 is killed and started again at once")
    talk.kill(second)
    talk.start_taskmanager("tm1-again", 1, threads=1)
    talk.run(8)
    return talk


def restarted_jobmanager_adopts() -> Conversation:
    talk, *_ = settled()
    talk.say("the JobManager is killed and started again")
    talk.kill(talk.members[0])
    talk.run(1)
    talk.start_jobmanager()
    talk.run(6)
    return talk


def stopped_jobmanager() -> Conversation:
    talk, *_ = settled()
    jobmanager = talk.members[0]
    assert isinstance(jobmanager, JobManager)
    talk.say("the JobManager is stopped, and nothing else happens")
    jobmanager.stop()
    talk.run(6)
    return talk


def graceful_leave() -> Conversation:
    talk, _, second = settled()
    talk.say("tm1 is told to stop")
    second.stop()
    talk.run(5)
    return talk


def second_jobmanager_takes_over() -> Conversation:
    talk, *_ = settled()
    talk.say("another JobManager of the same job starts")
    talk.start_jobmanager("jm-2")
    talk.run(6)
    return talk


def duplicate_id_is_refused() -> Conversation:
    talk, *_ = settled()
    talk.say("somebody starts a second TaskManager with id 0")
    talk.start_taskmanager("tm0-too", 0, threads=4)
    talk.run(9)
    return talk


def id_out_of_range_is_refused() -> Conversation:
    talk, *_ = settled()
    talk.say("somebody starts a TaskManager with id 7, but tm_number is 3")
    talk.start_taskmanager("tm7", 7, threads=1)
    talk.run(9)
    return talk


SCENES: list[Callable[[], Conversation]] = [
    first_start,
    late_joiner,
    down_then_reassigned,
    paused_taskmanager_returns,
    killed_taskmanager_returns_as_another_process,
    restarted_jobmanager_adopts,
    stopped_jobmanager,
    graceful_leave,
    second_jobmanager_takes_over,
    duplicate_id_is_refused,
    id_out_of_range_is_refused,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene.__name__))
def test_transcript(scene: Callable[[], Conversation], request: pytest.FixtureRequest) -> None:
    golden = FOLDER / f"{scene.__name__}.txt"
    said = scene().text
    if request.config.getoption("--rewrite-transcripts", False):
        golden.write_text(said, encoding="utf-8")

    assert said == golden.read_text(encoding="utf-8")


def test_every_transcript_belongs_to_a_scene() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {scene.__name__ for scene in SCENES}

"""How far the writers of a topic are, from what they have committed and what is unread."""

from __future__ import annotations

import pytest

from kafka_pipeline.common.committed import Committed, InputProgress, topic_mark
from kafka_pipeline.common.pipelines.event_time import Writer
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.streams.event_time.progress import Progress
from kafka_pipeline.streams.event_time.writer_progress import Answers, Holder, WriterProgress

IDLE_MS = 1000
IDLE = True
ONE = Writer(processor="P", inputs={"in": 2})


def at(offset: int, time_ms: int, **more: object) -> Committed:
    values = {"end": offset, "time_ms": time_ms, **more}
    return Committed(offset, time_ms, progress=InputProgress(**values))  # type: ignore[arg-type]


def answers(committed: dict[int, Committed], ends: dict[int, int], **more: int) -> Answers:
    return Answers(
        {"P": {("in", number): each for number, each in committed.items()}},
        {("in", number): more.get("start", 0) for number in range(2)},
        {("in", number): end for number, end in ends.items()},
    )


def progress(
    known: WriterProgress, found: Answers, now_ms: int = 0, writer: Writer = ONE
) -> Progress:
    return known.of("out", [writer], found, now_ms).progress


def test_the_least_of_the_tasks_that_have_something_unread_counts() -> None:
    known = WriterProgress(IDLE_MS)
    found = answers({0: at(5, 50), 1: at(9, 90)}, {0: 6, 1: 10})
    assert progress(known, found) == Progress(50)
    assert known.of("out", [ONE], found, 0).holders == [
        Holder(TaskId("P", 0), 50, 1),
        Holder(TaskId("P", 1), 90, 1),
    ]


def test_what_was_read_to_its_end_holds_for_a_while() -> None:
    known = WriterProgress(IDLE_MS)
    found = answers({0: at(5, 50), 1: at(9, 90)}, {0: 5, 1: 10})
    assert progress(known, found) == Progress(50)
    assert progress(known, found, 999) == Progress(50)
    assert progress(known, found, 1000) == Progress(90)
    # As soon as Kafka has a record of it, it counts again.
    more = answers({0: at(5, 50), 1: at(9, 90)}, {0: 6, 1: 10})
    assert progress(known, more, 1001) == Progress(50)
    assert progress(known, found, 1500) == Progress(50)


def test_records_that_were_read_since_the_last_look_count_as_activity() -> None:
    known = WriterProgress(IDLE_MS)
    found = answers({0: at(5, 50), 1: at(9, 90)}, {0: 5, 1: 10})
    assert progress(known, found) == Progress(50)
    found = answers({0: at(6, 55), 1: at(9, 90)}, {0: 6, 1: 10})
    assert progress(known, found, 900) == Progress(55)
    assert progress(known, found, 1800) == Progress(55)
    assert progress(known, found, 1900) == Progress(90)


def test_markers_after_the_last_record_are_not_unread() -> None:
    known = WriterProgress(0)
    found = answers({0: at(5, 50, end=6), 1: at(9, 90)}, {0: 6, 1: 10})
    assert progress(known, found)[0] == 90


def test_all_idle_are_as_far_as_the_first_of_them() -> None:
    known = WriterProgress(0)
    found = answers({0: at(5, 50), 1: at(9, 90)}, {0: 5, 1: 9})
    assert progress(known, found) == Progress(90, True)


def test_a_task_that_never_committed_holds_if_there_is_something_to_read() -> None:
    known = WriterProgress(0)
    assert progress(known, answers({1: at(9, 90)}, {0: 3, 1: 10})) == Progress(-1)
    # Everything was deleted by retention, or nothing was ever there.
    found = answers({1: at(9, 90)}, {0: 3, 1: 10}, start=3)
    assert progress(known, found) == Progress(90)


@pytest.mark.parametrize("found", [Answers({}, {}, {}), answers({0: at(5, 50), 1: at(9, 90)}, {})])
def test_nothing_is_idle_while_brokers_do_not_answer(found: Answers) -> None:
    known = WriterProgress(0)
    assert not progress(known, found).is_idle
    assert known.of("out", [ONE], found, 0).holders[0].unread is None


def test_what_is_held_back_is_subtracted() -> None:
    known = WriterProgress(0)
    holds = ((topic_mark("out"), 100),)
    found = answers({0: at(5, 500, holds=holds), 1: at(9, 900, holds=holds)}, {0: 6, 1: 10})
    assert progress(known, found) == Progress(400)
    # Not for the topic of another step of the task.
    assert known.of("another", [ONE], found, 0).progress == Progress(500)


def test_of_an_internal_input_only_the_task_says_whether_it_is_idle() -> None:
    inner = Writer(processor="P", inputs={"in": 1}, internal={"in": ("W",)})
    known = WriterProgress(0)
    found = answers({0: at(5, 50)}, {0: 5})
    assert progress(known, found, 10_000, inner) == Progress(50)
    found = answers({0: at(5, 50, is_idle=True)}, {0: 5})
    assert progress(known, found, 0, inner) == Progress(50, True)
    # A version that knew nothing of event time has committed this.
    found = answers({0: Committed(5, 50)}, {0: 6})
    assert progress(known, found, 0, inner) == Progress(-1)


def test_an_internal_input_is_not_idle_while_something_is_under_way_to_it() -> None:
    inner = Writer(processor="P", inputs={"moved": 1}, internal={"moved": ("S",)})
    upstream = {"moved": (Writer(processor="S", inputs={"source": 2}),)}
    known = WriterProgress(IDLE_MS)

    def found(now_ms: int, read: int, end: int) -> Progress:
        positions = {
            # Both tasks were idle, and have not learned of the sources' new records.
            "P": {("moved", 0): at(5, 50, is_idle=True)},
            "S": {("source", 0): at(9, 50), ("source", 1): at(read, 50)},
        }
        ends = {("moved", 0): 5, ("source", 0): 9, ("source", 1): end}
        asked = Answers(positions, {}, ends)
        return known.of("out", [inner], asked, now_ms, upstream).progress

    assert found(0, 7, 7) == Progress(50)
    assert found(1000, 7, 7) == Progress(50, IDLE)
    assert found(1001, 7, 8) == Progress(50)
    assert found(1002, 8, 8) == Progress(50)
    assert found(2002, 8, 8) == Progress(50, IDLE)


def test_of_several_inputs_the_task_says_so_unless_it_is_silent() -> None:
    both = Writer(processor="P", inputs={"in": 1, "other": 1})
    known = WriterProgress(IDLE_MS)
    positions = {("in", 0): at(5, 50), ("other", 0): at(7, 70)}
    found = Answers({"P": positions}, {}, {("in", 0): 5, ("other", 0): 8})
    assert progress(known, found, 0, both) == Progress(50)
    assert progress(known, found, 5000, both) == Progress(50)
    assert progress(known, found, 10_000, both) == Progress(70)


def test_who_knows_less_than_others_of_the_same_sources_was_idle_before() -> None:
    inner = Writer(processor="P", inputs={"in": 2}, internal={"in": ("W",)})
    known = WriterProgress(0)
    first = at(5, 50, sources_ms=50, is_idle=True)
    second = at(9, 2000, sources_ms=2000, is_idle=True)
    ends = {0: 5, 1: 9}
    assert known.of("out", [inner], answers({0: first, 1: second}, ends), 0).progress == (
        50,
        False,
        50,
    )
    assert known.of("out", [inner], answers({0: first, 1: second}, ends), 0).holders == [
        Holder(TaskId("P", 0), 50, 0)
    ]
    first = at(5, 2000, sources_ms=2000, is_idle=True)
    assert known.of("out", [inner], answers({0: first, 1: second}, ends), 0).progress == (
        2000,
        True,
        2000,
    )

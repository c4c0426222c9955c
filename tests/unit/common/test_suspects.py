"""What a task is suspected of after deaths of its workers, and when that becomes a verdict."""

from __future__ import annotations

from kafka_pipeline.common.protocol.suspects import CallKind, Suspect, after_death, as_suspects

RANGE = Suspect(CallKind.PROCESS, "in", 1, 10, 20)
RECORD = Suspect(CallKind.PROCESS, "in", 1, 15, 15)
HOW = "SIGSEGV"
VERDICT = Suspect(CallKind.PROCESS, "in", 1, 15, 15, HOW)


def test_second_death_at_a_record_is_a_verdict_on_it_alone() -> None:
    assert after_death([], RECORD, HOW, is_alone=True) == (RECORD,)
    assert after_death([RECORD], RECORD, HOW, is_alone=True) == (VERDICT,)
    assert after_death([RANGE], RECORD, HOW, is_alone=True) == (VERDICT,)


def test_other_records_several_records_and_calls_of_several_tasks_are_no_verdict() -> None:
    other = Suspect(CallKind.PROCESS, "in", 1, 21, 21)
    assert after_death([RANGE], other, HOW, is_alone=True) == (RANGE, other)
    assert after_death([RANGE], RANGE, HOW, is_alone=True) == (RANGE,)
    assert after_death([RANGE], RECORD, HOW, is_alone=False) == (RANGE, RECORD)
    elsewhere = Suspect(CallKind.PROCESS, "in", 2, 15, 15)
    assert after_death([RANGE], elsewhere, HOW, is_alone=True) == (RANGE, elsewhere)


def test_records_of_several_inputs_may_be_any_record() -> None:
    several = Suspect(CallKind.PROCESS)
    assert after_death([several], RECORD, HOW, is_alone=True) == (VERDICT,)


def test_calls_without_records_need_the_same_kind_twice() -> None:
    init, timer = Suspect(CallKind.INIT), Suspect(CallKind.PUNCTUATION)
    assert after_death([init], timer, HOW, is_alone=True) == (init, timer)
    found = after_death([init, timer], timer, HOW, is_alone=True)
    assert found == (init, Suspect(CallKind.PUNCTUATION, verdict=HOW))


def test_verdict_is_kept_when_another_record_ends_the_process() -> None:
    other = Suspect(CallKind.PROCESS, "in", 1, 30, 30)
    assert after_death([VERDICT], other, HOW, is_alone=True) == (VERDICT, other)


def test_another_worker_judges_for_itself() -> None:
    assert as_suspects([VERDICT, RANGE]) == (RECORD, RANGE)


def test_places_say_which_records() -> None:
    assert RANGE.place == "`process` of in[1]@10 to 20"
    assert RECORD.place == "`process` of in[1]@15"
    assert Suspect(CallKind.PROCESS).place == "`process` of several inputs"
    assert Suspect(CallKind.INIT).place == "`init`"

"""The faults that the console counts among dead letters."""

from __future__ import annotations

from typing import Any

from kafka_pipeline.console.views.letters import LetterQuery, letters
from kafka_pipeline.operations.dead_letters import DeadLetter, Wanted
from kafka_pipeline.operations.latest_letters import LetterList
from tests.console_job import dead_letter


def faults(*dead: DeadLetter) -> list[dict[str, Any]]:
    found = LetterList(dead, {"Price": "dead"}, {})
    errors: list[dict[str, Any]] = letters(found, LetterQuery(Wanted(), False, 1), 0)["errors"]
    return errors


def test_reasons_of_an_error_that_differ_in_more_than_numbers_are_faults_of_their_own() -> None:
    found = faults(
        dead_letter(1, "7 is too much"),
        dead_letter(2, "12 is too much"),
        dead_letter(3, "no price"),
        dead_letter(4, "no price", error="builtins.KeyError"),
    )
    assert [(row["error"], row["count"], row["reason"]) for row in found] == [
        ("RecordRejected", 2, "12 is too much"),
        ("builtins.KeyError", 1, "no price"),
        ("RecordRejected", 1, "no price"),
    ]


def test_rare_faults_are_one_row() -> None:
    found = faults(*(dead_letter(at, f"no {'x' * min(at, 120)}") for at in range(150)))
    assert len(found) == 100
    assert found[0]["count"] == 30
    assert (found[-1]["reason"], found[-1]["count"]) == ("22 other reasons", 22)
    assert sum(row["count"] for row in found) == 150

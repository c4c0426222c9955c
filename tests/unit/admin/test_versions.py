"""What `pipeline versions` says of versions on trial, and where `pipeline rollback` goes."""

from __future__ import annotations

import pytest

from kafka_pipeline.admin.commands import apply, versions
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    TakenBack,
    Trial,
    Wish,
    records,
)
from tests.unit.deployment.test_change import graph

NAMES = TopicNames("job", "in", "out")
BACK = TakenBack(version=3, to=2, reason="A_0 is FAILED (no prices)")


def deployed(wish: Wish, count: int, back: TakenBack | None = None) -> Deployment:
    """Return so many versions, of which the last one may be a way back."""
    made = Deployment(NAMES)
    for number in range(1, count + 1):
        takes_back = back if number == count else None
        version = PipelineVersion(number, graph("A"), "", 0, "ada", takes_back)
        for record in records(NAMES, wish, version):
            made.take(record)
    return made


def shown(deployment: Deployment) -> list[tuple[object, object]]:
    return [(each["state"], each["reason"]) for each in versions._as_json(deployment)]


def test_version_on_trial_is_shown_once_it_runs() -> None:
    trial = Trial(back_to=1, within_ms=1)
    assert shown(deployed(Wish(version=1, next=2, trial=trial), 2)) == [
        ("CURRENT", ""),
        ("COMING", ""),
    ]
    assert shown(deployed(Wish(version=2, trial=trial), 2)) == [("FORMER", ""), ("ON TRIAL", "")]


def test_version_that_was_rolled_back_is_shown_with_the_reason() -> None:
    deployment = deployed(Wish(version=4), 4, BACK)
    assert shown(deployment) == [
        ("FORMER", ""),
        ("FORMER", ""),
        ("ROLLED BACK", "A_0 is FAILED (no prices)"),
        ("CURRENT", "instead of version 3"),
    ]
    columns = [column.header for column in versions._table(deployment).columns]
    assert columns[-1] == "why"
    plain = versions._table(deployed(Wish(version=2), 2))
    assert [column.header for column in plain.columns] == columns[:-1]


def test_rollback_does_not_go_to_what_was_rolled_back() -> None:
    assert apply._former(deployed(Wish(version=4), 4), None).number == 3
    assert apply._former(deployed(Wish(version=4), 4, BACK), None).number == 1
    assert apply._former(deployed(Wish(version=4), 4, BACK), 3).number == 3
    assert apply._former(deployed(Wish(version=3, next=4), 4), None).number == 3


@pytest.mark.parametrize("to", [None, 7])
def test_rollback_to_a_version_that_is_not_there(to: int | None) -> None:
    with pytest.raises(ConfigError, match="this job has no version"):
        apply._former(deployed(Wish(version=1), 1), to)

"""What is asked of a job, as its pipeline topic keeps it."""

from __future__ import annotations

import json

import pytest

from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.common.typed_json import as_json
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    TakenBack,
    Trial,
    UnreadableDeploymentError,
    Wish,
    records,
    version_to_json,
)

NAMES = TopicNames("job", "in", "out")
STOP = StopOrder(purpose="restore", token="a1", by="me@host", drains=True)


def read_back(*wishes: Wish) -> Wish | None:
    deployment = Deployment(NAMES)
    for wish in wishes:
        for record in records(NAMES, wish):
            deployment.take(record)
    return deployment.wish


def test_single_tasks_are_paused_and_restarted() -> None:
    wish = Wish(version=1).with_paused(["B"], ["A_1", "A_0"]).with_restarts(["A", "A_1"])
    wish = wish.with_restarts(["A_1"])
    assert (wish.paused, wish.paused_tasks) == (("B",), ("A_0", "A_1"))
    assert wish.restarts == {"A": 1, "A_1": 2}
    found = read_back(wish)
    assert found == wish
    assert found is not None
    assert found.restarts == wish.restarts


def test_stop_comes_with_the_wish_and_goes_with_it() -> None:
    wish = Wish(version=1, paused=("A",))
    assert read_back(wish.with_stop(STOP)) == Wish(version=1, paused=("A",), stop=STOP)
    assert read_back(wish.with_stop(STOP), wish.with_stop(STOP).with_stop(None)) == wish


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"paused_tasks": ["A"]}, 'paused_tasks: "A" is not a task id'),
        ({"paused_tasks": ["A_0.standby0"]}, "is not a task id"),
        ({"stop": {"purpose": "fun", "token": "t", "by": "me"}}, "at `$.stop.purpose`"),
        (
            {"stop": {"purpose": "restore", "token": "../t", "by": "me"}},
            "`$.stop",
        ),
        ({"stop": {"purpose": "restore"}}, "field `token` - at `$.stop`"),
    ],
)
def test_wish_that_no_tool_wrote_is_reported(changed: dict[str, object], problem: str) -> None:
    value = json.dumps({"version": 1, **changed}).encode()
    record = ControlRecord(NAMES.pipeline, b"wish", value, (("format", b"1"),), offset=41)
    with pytest.raises(UnreadableDeploymentError, match="offset 41") as caught:
        Deployment(NAMES).take(record)
    assert problem in str(caught.value)


def test_trial_comes_with_the_wish_and_goes_once_it_is_confirmed() -> None:
    trial = Trial(back_to=1, within_ms=20_000)
    wish = Wish(version=1, paused=("A",)).of(1, 2, trial)
    found = read_back(wish)
    assert found is not None
    assert found.trial == trial
    assert as_json(wish)["trial"] == {"back_to": 1, "within_ms": 20_000}
    version = PipelineVersion(2, Pipeline((), NAMES, 1), "", 0, "ada")
    assert wish.running(version) == Wish(version=2, trial=trial)
    # What earlier versions of the engine can read.
    assert as_json(wish.running(version).confirmed()) == {"version": 2}
    assert wish.of(2).trial is None


def test_version_that_was_rolled_back_is_found_by_the_one_that_came_in_its_place() -> None:
    back = TakenBack(version=2, to=1, reason="A_0 is FAILED")
    deployment = Deployment(NAMES)
    for number in (1, 2, 3):
        takes_back = back if number == 3 else None
        version = PipelineVersion(number, Pipeline((), NAMES, 1), "", 0, "ada", takes_back)
        for record in records(NAMES, Wish(version=number), version):
            deployment.take(record)
    assert [deployment.taken_back(number) for number in (1, 2, 3)] == [None, back, None]
    assert "takes_back" not in version_to_json(deployment.version(1))
    assert deployment.version(3).takes_back == back

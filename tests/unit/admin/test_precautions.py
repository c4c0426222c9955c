"""The savepoint that `pipeline apply` makes by itself."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kafka_pipeline.admin.precautions import former_savepoint, make_savepoint, state_changes
from kafka_pipeline.admin.signals import orderly_end
from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.specs import ClassSpec
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    TakenBack,
    Wish,
    records,
)
from kafka_pipeline.deployment.plan import Plan, plan
from kafka_pipeline.deployment.store_contents import StateEffect, StateName, Verdict
from kafka_pipeline.operations.savepoints import create
from tests.unit.deployment.test_other_code import CLASS, NAMES, QUERY, job

BEFORE = PipelineVersion(1, job(CLASS), "", 0, "ada")


def deployed(*versions: PipelineVersion) -> Deployment:
    made = Deployment(NAMES)
    for version in (BEFORE, *versions):
        for record in records(NAMES, Wish(version=version.number), version):
            made.take(record)
    return made


def planned(after: Pipeline, verdicts: Mapping[StateName, Verdict] = {}) -> Plan:
    topics = after.state_topics(after.processors[0]).values()
    return plan(BEFORE.pipeline, after, topics, verdicts)


def test_state_that_may_change_is_named() -> None:
    other = job(ClassSpec(code="shop:Other", stores=CLASS.stores))
    assert state_changes(Deployment(NAMES), other, planned(other)) == []
    assert state_changes(deployed(), job(CLASS), planned(job(CLASS))) == []
    assert state_changes(deployed(), other, planned(other)) == [
        'the format of the state of "A" may change: shop:Totals becomes shop:Other'
    ]


@pytest.mark.parametrize("effect", StateEffect)
def test_the_plan_says_which_state_is_converted_or_unchecked(effect: StateEffect) -> None:
    after = job(replace(CLASS, config={"limit": 7}))
    verdicts = {("A", "totals"): Verdict(effect, "why")}
    is_named = effect in (StateEffect.CONVERTED, StateEffect.UNCHECKED)
    assert (
        state_changes(deployed(), after, planned(after, verdicts))
        == ['the format of the state of "A" may change: why'] * is_named
    )


def test_savepoint_of_the_version_that_runs_or_that_was_rolled_back_is_named() -> None:
    assert former_savepoint(deployed()) == []
    second = PipelineVersion(2, job(QUERY), "", 0, "ada", savepoint="host:/s")
    (line,) = former_savepoint(deployed(second))
    assert line.startswith("host:/s is a savepoint of the job as it was before")
    back = TakenBack(version=2, to=1, reason="A_0 is FAILED", savepoint="host:/s")
    third = PipelineVersion(3, job(CLASS), "", 0, "ada", back)
    assert former_savepoint(deployed(second, third)) == [line]
    assert "host:/s is a savepoint of the job as it was before" in back.text


def test_signal_ends_what_it_interrupts_in_order() -> None:
    former = signal.getsignal(signal.SIGTERM)
    ended = []

    @orderly_end()
    def interrupted() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            ended.append(signal.getsignal(signal.SIGTERM))

    with pytest.raises(SystemExit) as caught:
        interrupted()
    assert (caught.value.code, ended) == (128 + signal.SIGTERM, [signal.SIG_IGN])
    assert signal.getsignal(signal.SIGTERM) == former


def test_savepoint_is_made_below_its_folder_and_never_twice_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config: Any = SimpleNamespace(job_name="job", savepoint_dir=tmp_path / "savepoints")

    class Creation:
        def __init__(self, _config: object, _admin: object, folder: Path, _say: object) -> None:
            self.folder = folder

        def carry_out(self, **_: object) -> None:
            self.folder.mkdir(parents=True)

    monkeypatch.setattr(create, "Creation", Creation)
    host = socket.gethostname()
    wanted = tmp_path / "savepoints" / "apply-job-version-2"
    admin: Any = None
    assert make_savepoint(config, admin, deployed()) == f"{host}:{wanted}"
    assert make_savepoint(config, admin, deployed()) == f"{host}:{wanted}-2"
    assert f"{wanted} is a savepoint of the job as it was before" in capsys.readouterr().out

    def refuse(*_: object, **__: object) -> None:
        raise UnavailableError("the job does not come to rest")

    monkeypatch.setattr(Creation, "carry_out", refuse)
    with pytest.raises(UnavailableError):
        make_savepoint(config, admin, deployed())
    assert "unless you say --no-savepoint" in capsys.readouterr().err

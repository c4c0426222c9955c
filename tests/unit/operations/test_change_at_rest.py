"""Two commands that carry out the same change at once, one that was overtaken, and one that is not
the one that was interrupted.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.process.locks import exclusive
from kafka_pipeline.common.topic_names import TopicNames
from kafka_pipeline.deployment.deploy import Proposal
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    Wish,
    records,
)
from kafka_pipeline.deployment.pipeline_topic import ChangedMeanwhileError
from kafka_pipeline.operations.savepoints import change_at_rest as module
from kafka_pipeline.operations.savepoints import create
from kafka_pipeline.operations.savepoints.change_at_rest import ChangeAtRest
from tests.unit.deployment.test_change import graph

NAMES = TopicNames("job", "in", "out")
PROPOSAL = Proposal(graph("A B"), "")


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment(NAMES)
    run(made, 1)
    monkeypatch.setattr(module, "read_deployment", lambda *_: made)
    return made


def run(deployment: Deployment, number: int) -> None:
    version = PipelineVersion(number, graph("A B"), "", 0, "ada")
    for record in records(NAMES, Wish(version=number), version):
        deployment.take(record)


def change(folder: Path) -> ChangeAtRest:
    nothing: Any = SimpleNamespace()
    return ChangeAtRest(nothing, nothing, folder, lambda _: None)


def test_second_command_says_that_another_one_is_at_it(
    tmp_path: Path, deployment: Deployment
) -> None:
    folder = tmp_path / "savepoints" / "rescale-job-to-4"
    planned = change(folder)
    lock = folder.with_name(".rescale-job-to-4.lock")
    with exclusive(lock, wait=False):
        with pytest.raises(ConfigError, match="another command is carrying out the same change"):
            change(folder)
        with pytest.raises(ConfigError, match="rescale-job-to-4: wait for it"):
            planned.carry_out(PROPOSAL, 1, drains=True)
    change(folder)
    assert not change(folder.with_name("rescale-job-to-5")).is_begun


def test_command_that_was_overtaken_while_it_asked_changes_nothing(
    tmp_path: Path, deployment: Deployment
) -> None:
    planned = change(tmp_path / "rescale-job-to-4")
    run(deployment, 2)
    with pytest.raises(ChangedMeanwhileError, match="repeat it"):
        planned.carry_out(PROPOSAL, 1, drains=True)


@pytest.mark.parametrize("purpose", ["savepoint", "restore"])
def test_change_that_was_interrupted_is_not_completed_as_another_one(
    purpose: Literal["savepoint", "restore"],
    tmp_path: Path,
    deployment: Deployment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has perhaps deleted offsets that the other one would leave as they are."""
    stop = StopOrder(purpose=purpose, token="t", by="ada@x")
    version = PipelineVersion(1, graph("A B"), "", 0, "ada")
    for record in records(NAMES, Wish(version=1, stop=stop), version):
        deployment.take(record)
    manifest = SimpleNamespace(token="t", pipeline_version=lambda: version)
    monkeypatch.setattr(module, "is_savepoint", lambda _folder: True)
    monkeypatch.setattr(module, "read_manifest", lambda _folder: manifest)
    restored = SimpleNamespace(check_files=lambda: None, carry_out=lambda *_: 2)
    monkeypatch.setattr(module, "Restore", lambda *_, **_options: restored)
    planned, other = change(tmp_path / "lose-job-A-1"), Proposal(graph("A C"), "")
    assert planned.carry_out(PROPOSAL, 1, drains=True) == 2
    if purpose == "savepoint":
        assert planned.carry_out(other, 1, drains=True) == 2
        return
    with pytest.raises(ConfigError, match="was bringing version 1, and this is another pipeline"):
        planned.carry_out(other, 1, drains=True)


def test_nothing_else_begins_before_a_restore_that_was_interrupted_is_complete(
    tmp_path: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, `--rebuild` would compute for hours, and a savepoint would not find its topics."""
    stop = StopOrder(purpose="restore", token="t", by="ada@x")
    version = PipelineVersion(1, graph("A B"), "", 0, "ada")
    for record in records(NAMES, Wish(version=1, stop=stop), version):
        deployment.take(record)
    monkeypatch.setattr(create, "read_deployment", lambda *_: deployment)
    nothing: Any = SimpleNamespace()
    for begin in (change, lambda folder: create.Creation(nothing, nothing, folder, print)):
        with pytest.raises(ConfigError, match="ada@x is restoring the state of this job, or was"):
            begin(tmp_path / "other")

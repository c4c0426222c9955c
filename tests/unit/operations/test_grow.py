"""`pipeline grow`, and the ids that a TaskManager may have."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_pipeline.common.cluster.cluster_status import Presence, TaskManagerInfo
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.deployment.desired_state import Wish
from kafka_pipeline.operations import grow
from kafka_pipeline.taskmanager import command
from tests.small_config import small_config

CONFIG = small_config(tm_number=2)


def infos(**presences: Presence) -> list[TaskManagerInfo]:
    return [TaskManagerInfo(int(name[1:]), presence) for name, presence in presences.items()]


def test_a_smaller_number_than_that_of_config_yaml_is_refused_without_asking_kafka() -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml sets tm_number to 2, and the larger"):
        grow.planned(CONFIG, 1)


def test_task_managers_that_are_up_must_stop_before_the_job_shrinks() -> None:
    found = infos(t0=Presence.UP, t2=Presence.UP, t3=Presence.DOWN, t4=Presence.UP)
    with pytest.raises(ConfigError, match="TaskManagers 2, 4 are up, and ids would end at 1"):
        grow.require_none_up(found, 2)
    with pytest.raises(ConfigError, match="TaskManager 4 is up, and ids would end at 3: stop it"):
        grow.require_none_up(found, 4)
    grow.require_none_up(found, 5)


def test_a_wish_keeps_the_number_through_other_changes() -> None:
    grown = Wish(version=1).with_task_managers(3)
    assert grown.of(2).with_paused(["A"]).with_restarts(["A"]).task_managers == 3
    assert grown.with_task_managers(None) == Wish(version=1)


@pytest.mark.parametrize("tm_id", [0, 1])
def test_ids_below_tm_number_are_allowed_without_asking_kafka(
    tm_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(command, "connected")
    command.require_allowed(CONFIG, tm_id)


@pytest.mark.parametrize(
    ("tm_id", "grown", "last"), [(2, 0, 1), (2, 1, 1), (5, 5, 4), (-1, 5, 1), (3, 3, 2)]
)
def test_other_ids_are_refused_unless_the_job_was_grown(
    tm_id: int, grown: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grow_to(number: int) -> None:
        found = SimpleNamespace(wish=Wish(version=1, task_managers=number or None))
        monkeypatch.setattr(command, "read_deployment", lambda *_: found)

    monkeypatch.setattr(command, "connected", lambda _: None)
    grow_to(grown)
    with pytest.raises(ConfigError, match=rf"id {tm_id} is outside 0\.\.{last}: .*pipeline grow"):
        command.require_allowed(CONFIG, tm_id)
    grow_to(tm_id + 1)
    if tm_id >= 0:
        command.require_allowed(CONFIG, tm_id)

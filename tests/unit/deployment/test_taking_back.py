"""A version that waits for arcs to be drained is taken back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.deployment import deploy
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from tests.unit.deployment.test_change import NAMES, graph

BEFORE, AFTER = graph("A B C"), graph("A D C")


def test_the_version_that_runs_takes_the_place_of_the_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is to be drained any more, so it runs at once."""
    deployment, written = Deployment(NAMES), list[Any]()
    versions = (PipelineVersion(n, p, "", 0, "ada") for n, p in ((4, BEFORE), (5, AFTER)))
    for record in records(NAMES, Wish(version=4, next=5, paused=("B",)), *versions):
        deployment.take(record)

    class Topic:
        def __init__(self, *_: object) -> None:
            self.deployment = deployment

        def write(self, *what: object) -> None:
            written.extend(what)

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(deploy, "DeploymentEditor", Topic)
    monkeypatch.setattr(deploy, "read_deployment", lambda *_: deployment)
    monkeypatch.setattr(deploy, "control_topics", lambda _: ())
    admin: Any = SimpleNamespace(topics=dict, ensure_topics=lambda _: [])
    config: Config = SimpleNamespace(replication_factor=1)  # type: ignore[assignment]
    number = deploy.deploy(deploy.Proposal(BEFORE, "text"), config, admin, agreed=())
    wish, version = written
    assert (number, version.number, version.pipeline) == (6, 6, BEFORE)
    assert wish == Wish(version=6, paused=("B",))

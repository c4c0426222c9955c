"""What a JobManager does with a file that it cannot take, and with topics that were changed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.config.config import load_config
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.protocol.status import TaskState, TaskStatus
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.deployment.change import VersionChange
from kafka_pipeline.deployment.desired_state import TakenBack, Wish
from kafka_pipeline.jobmanager.rollout import Rollout
from kafka_pipeline.jobmanager.start import RefusedFile, StartFile
from kafka_pipeline.streams.pipeline.load import load_pipeline
from tests.small_config import SMALL_CONFIG
from tests.unit.deployment.test_change import graph

RIGHT = "- {id: A, type: forward, to: [sink]}\n"
BROKEN = "- {id: A, type: nonsense, to: [sink]}\n"
TAKEN_AWAY = 'this file would take away from it:\n  - "B" is removed'
GROWN = "topic state_topic_B has 2 partitions, the pipeline needs 3"


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What Kafka says: whether it is there, which version runs, what is wrong with another one."""
    found = SimpleNamespace(is_there=True, version=None, problem=None, taken=[])
    found.takes_back = found.tried = None

    def check_broker() -> None:
        if not found.is_there:
            raise UnavailableError("no broker answers")

    def prepare(pipeline: object, *_: object) -> object:
        if found.problem is not None:
            raise ConfigError(found.problem)
        return pipeline

    def version(number: int) -> SimpleNamespace:
        return SimpleNamespace(number=number, pipeline=found.tried, takes_back=found.takes_back)

    current = property(lambda _: found.version and version(found.version))
    content = {"current": current, "newest": current, "version": staticmethod(version)}
    deployment = type("Deployment", (), content)()
    home = "kafka_pipeline.jobmanager.start"
    monkeypatch.setattr(f"{home}.prepared", prepare)
    monkeypatch.setattr(f"{home}.read_deployment", lambda *_: deployment)
    monkeypatch.setattr(f"{home}.deploy", lambda proposal, *_, **__: found.taken.append(proposal))
    found.check_broker = check_broker
    return found


def deploy(tmp_path: Path, text: str, kafka: Any) -> RefusedFile | None:
    config, file = tmp_path / "config.yaml", tmp_path / "pipeline.yaml"
    config.write_text(SMALL_CONFIG)
    file.write_text(text)
    return StartFile(file, load_config(config), ()).deploy(kafka)


@pytest.mark.parametrize(
    ("text", "problem", "reason"),
    [
        (BROKEN, None, 'got the text "nonsense"'),
        (RIGHT, TAKEN_AWAY, '"B" is removed'),
        (RIGHT, GROWN, "the pipeline needs 3"),
    ],
)
def test_a_job_that_runs_goes_on_with_what_it_runs(
    tmp_path: Path,
    kafka: SimpleNamespace,
    text: str,
    problem: str | None,
    reason: str,
) -> None:
    kafka.problem = problem
    with pytest.raises(ConfigError, match=reason):
        deploy(tmp_path, text, kafka)
    kafka.version = 4
    with capture_logs() as logs:
        refusal = deploy(tmp_path, text, kafka)
    assert refusal is not None
    assert refusal.version == 4
    assert reason in refusal.text
    (said,) = logs
    assert said["event"].endswith("the job keeps running its current version")
    assert (said["log_level"], said["version"]) == ("error", 4)
    assert reason in said["reason"]
    assert kafka.taken == []


def test_a_right_file_is_taken(tmp_path: Path, kafka: SimpleNamespace) -> None:
    kafka.version = 4
    assert deploy(tmp_path, RIGHT, kafka) is None
    assert [proposal.text for proposal in kafka.taken] == [RIGHT]


def test_a_file_that_was_rolled_back_is_not_tried_again(
    tmp_path: Path, kafka: SimpleNamespace
) -> None:
    kafka.version, kafka.takes_back = 4, TakenBack(version=3, to=2, reason="A_0 is FAILED")
    kafka.tried = graph("B")
    assert deploy(tmp_path, RIGHT, kafka) is None
    file, config = tmp_path / "pipeline.yaml", load_config(tmp_path / "config.yaml")
    kafka.tried, kafka.taken = load_pipeline(file, config), []
    refusal = deploy(tmp_path, RIGHT, kafka)
    assert refusal is not None
    assert "version 3 was rolled back to version 2: A_0 is FAILED. `pipeline apply`" in refusal.text
    assert kafka.taken == []


@pytest.mark.parametrize(("text", "said"), [(RIGHT, ""), (BROKEN, 'got the text "nonsense"')])
def test_without_kafka_the_job_manager_may_be_started_again_though_the_file_is_wrong(
    tmp_path: Path, kafka: SimpleNamespace, text: str, said: str
) -> None:
    """With exit code 2, a supervisor would leave a job that runs without a JobManager."""
    kafka.is_there = False
    with pytest.raises(UnavailableError, match="no broker answers") as raised:
        deploy(tmp_path, text, kafka)
    assert said in str(raised.value)
    assert raised.value.exit_code == 3


class _Topics:
    """Topics in Kafka: those of `misfits` do not suit the job."""

    def __init__(self, misfits: set[str]) -> None:
        self.misfits = misfits
        self.created: list[str] = []

    def ensure_topics(self, specs: tuple[TopicSpec, ...]) -> list[str]:
        if wrong := [spec.name for spec in specs if spec.name in self.misfits]:
            raise ConfigError(f"topic {', '.join(wrong)} has 5 partitions")
        self.created += [spec.name for spec in specs]
        return [spec.name for spec in specs]


def test_a_topic_that_was_changed_from_outside_does_not_end_the_job_manager() -> None:
    rollout = object.__new__(Rollout)
    rollout._admin = topics = _Topics({"b"})  # type: ignore[assignment]
    with capture_logs() as logs:
        assert rollout._ensure([TopicSpec(name, 1, 1) for name in "abc"]) == ["a", "c"]
    assert topics.created == ["a", "c"]
    assert [each["reason"] for each in logs] == ["topic b has 5 partitions"]


def test_an_arc_whose_reader_has_failed_is_a_finding_and_logged_once() -> None:
    rollout = object.__new__(Rollout)
    rollout._topics, rollout._taken_back, rollout._held_up = None, None, ()
    rollout._seen = Wish(version=1, next=2)
    coming = SimpleNamespace(number=2, made_at_ms=0)
    deployment: Any = SimpleNamespace(coming=coming)
    rollout._reader = SimpleNamespace(deployment=deployment)  # type: ignore[assignment]
    change = VersionChange(graph("A B C"), graph("A D C"))
    failed = [TaskStatus(TaskId("B", 0), TaskState.FAILED, "its query changed")]
    state = SimpleNamespace(failed=lambda reader: failed if reader == "B" else [])
    for left, count in ((0, 0), (7, 1), (7, 0), (0, 0)):
        with capture_logs() as logs:
            rollout._look_for_failed(change, state, {"A_B": left})  # type: ignore[arg-type]
        assert len(logs) == count
        assert len(rollout.findings) == bool(left)
        assert all("A_B to be drained: 7 offsets left, and B_0 is" in f for f in rollout.findings)

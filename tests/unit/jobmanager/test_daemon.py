"""The JobManager's process, on a Kafka that only takes records down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from common.codec import Codec
from common.config import Config
from common.deployment import Deployed, PipelineVersion, Wish
from common.kafka.clients import TransactionFailedError
from common.messages import ControlRecord, JobManagerBeat, replicas
from common.pipeline import Pipeline
from common.processors import SINK, SOURCE, PipelineProcessor
from common.specs import ForwardSpec
from common.tasks import TaskId
from console.tap import Tap
from jobmanager import daemon
from jobmanager.daemon import JobManagerDaemon
from jobmanager.events import PipelineChanged
from jobmanager.state import JobManagerState

CONFIG = Config(
    server_ip="127.0.0.1",
    server_port=9092,
    tm_number=1,
    parallelism=1,
    replication_factor=1,
    source_topic="in",
    sink_topic="out",
)
PIPELINE = Pipeline(
    (PipelineProcessor("P", ForwardSpec(), (SINK,), (SOURCE,)),), CONFIG.topic_names, parallelism=1
)
EPOCH = 7


class Kafka:
    """Takes everything, and brings nothing back."""

    def __init__(self) -> None:
        self.reports: list[ControlRecord] = []
        self.answers = True
        self.control_records: list[ControlRecord] = []
        self.polls = 0

    def client(self, *_: object, **__: object) -> SimpleNamespace:
        nothing: Any = lambda *_: None  # noqa: E731
        return SimpleNamespace(
            read=lambda _: self.control_records,
            close=nothing,
            write=self.take,
            poll=self.poll,
        )

    def take(self, records: Sequence[ControlRecord]) -> None:
        self.reports += records

    def poll(self) -> None:
        self.polls += 1

    def command_writer(self, *_: object) -> SimpleNamespace:
        if not self.answers:
            raise TransactionFailedError("Kafka is away")
        return SimpleNamespace(write=lambda _: EPOCH)


class Signals:
    """Asks to stop after so many looks."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def hold(self) -> None:
        pass

    @property
    def is_requested(self) -> bool:
        self.left -= 1
        return self.left < 0


class Rollout:
    """Has one version to run, from the first look on."""

    deployed = Deployed(PipelineVersion(1, PIPELINE, "", 0, "ada"), Wish(version=1))

    def __init__(self, *_: object) -> None:
        self._events = iter([PipelineChanged(replicas(PIPELINE))])

    def advance(self, _: JobManagerState) -> Iterator[PipelineChanged]:
        return self._events

    def close(self) -> None:
        pass


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    for name in ("ControlReader", "ReportWriter"):
        monkeypatch.setattr(daemon, name, made.client)
    monkeypatch.setattr(daemon, "CommandWriter", made.command_writer)
    monkeypatch.setattr(daemon, "Rollout", Rollout)
    return made


def beats(kafka: Kafka, looks: int) -> list[JobManagerBeat]:
    """Run a JobManager that is stopped after so many turns; return its heartbeats."""
    JobManagerDaemon(CONFIG, kafka.client(), Signals(looks)).run()  # type: ignore[arg-type]
    messages = map(Codec(CONFIG.topic_names).decode, kafka.reports)
    return [message for message in messages if isinstance(message, JobManagerBeat)]


def test_console_gets_what_is_read_and_what_the_job_runs(kafka: Kafka) -> None:
    tap = Tap(2)
    record = ControlRecord("heartbeat_topic", b"0", b"not a heartbeat")
    kafka.control_records = [record]
    JobManagerDaemon(CONFIG, kafka.client(), Signals(1), tap).run()  # type: ignore[arg-type]
    assert [read for read, _ in tap.take()] == [record]
    assert tap.deployed is Rollout.deployed


def test_job_manager_that_is_stopped_says_so_in_its_last_heartbeat(kafka: Kafka) -> None:
    *others, last = beats(kafka, looks=3)
    assert [beat.leaving for beat in others] == [False]
    assert (last.epoch, last.leaving, last.owners) == (EPOCH, True, {TaskId("P", 0): None})


def test_job_manager_that_never_led_stops_without_a_word(kafka: Kafka) -> None:
    kafka.answers = False
    assert beats(kafka, looks=3) == []


def test_errors_of_reports_are_looked_for_in_each_turn(kafka: Kafka) -> None:
    beats(kafka, looks=3)
    assert kafka.polls == 3

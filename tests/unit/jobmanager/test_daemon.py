"""The JobManager's process, on a Kafka that only takes records down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from structlog.testing import capture_logs

from kafka_pipeline.common.kafka.clients import NonRetriableError, TransactionFailedError
from kafka_pipeline.common.monitoring.exposition import Samples
from kafka_pipeline.common.monitoring.monitoring import Monitoring, Problems
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SINK, SOURCE, PipelineProcessor
from kafka_pipeline.common.pipelines.specs import ForwardSpec
from kafka_pipeline.common.protocol.codec import Codec
from kafka_pipeline.common.protocol.messages import (
    ControlRecord,
    Heartbeat,
    JobManagerBeat,
    Report,
    replicas,
)
from kafka_pipeline.common.tasks import TaskId
from kafka_pipeline.console.board import Tap
from kafka_pipeline.deployment.desired_state import Deployed, PipelineVersion, Wish
from kafka_pipeline.jobmanager import daemon
from kafka_pipeline.jobmanager.daemon import JobManagerDaemon
from kafka_pipeline.jobmanager.events import PipelineChanged
from kafka_pipeline.jobmanager.state import JobManagerState
from tests.small_config import small_config

CONFIG = small_config()
PIPELINE = Pipeline(
    (PipelineProcessor("P", ForwardSpec(), (SINK,), (SOURCE,)),), CONFIG.topic_names, parallelism=1
)
EPOCH = 7


class Kafka:
    """Takes everything, and brings back only what a test gives it."""

    def __init__(self) -> None:
        self.reports: list[ControlRecord] = []
        self.answers = True
        self.brings: list[ControlRecord] = []
        """What is read next."""
        self.later: list[list[ControlRecord]] = []
        """What the reads before that bring."""
        self.polls = 0
        self.refusals = 0
        """How many times it refuses commands to TaskManagers."""

    def client(self, *_: object, **__: object) -> SimpleNamespace:
        nothing: Any = lambda *_: None  # noqa: E731
        return SimpleNamespace(
            read=self.read,
            close=nothing,
            write=self.take,
            poll=self.poll,
        )

    def read(self, _wait_s: float) -> list[ControlRecord]:
        if self.later:
            return self.later.pop(0)
        brought, self.brings = self.brings, []
        return brought

    def take(self, records: Sequence[ControlRecord]) -> None:
        self.reports += records

    def poll(self) -> set[str]:
        self.polls += 1
        return set()

    def command_writer(self, *_: object) -> SimpleNamespace:
        if not self.answers:
            raise TransactionFailedError("Kafka is away")
        return SimpleNamespace(write=self.write_commands)

    def write_commands(self, records: Sequence[ControlRecord]) -> int:
        if self.refusals and CONFIG.topic_names.processors("0") in {r.topic for r in records}:
            self.refusals -= 1
            raise NonRetriableError("a right is missing")
        return EPOCH


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

    rejected = 0
    findings = ("clicks has 3 partitions",)
    unread: ClassVar = {"P": 7}
    deployed = Deployed(PipelineVersion(1, PIPELINE, "", 0, "ada"), Wish(version=1))

    def __init__(self, *_: object) -> None:
        self._events = iter([PipelineChanged(replicas(PIPELINE))])

    def advance(self, _: JobManagerState) -> Iterator[PipelineChanged]:
        return self._events

    def close(self) -> None:
        pass


class Pages:
    """Takes what a daemon shows, and looks at it each time that the loop turns."""

    def __init__(self) -> None:
        self.ready: list[list[str]] = []
        self.samples: list[dict[str, Any]] = []

    def begin(self, samples: Samples, ready: Problems) -> None:
        self._shown = samples, ready

    def turned(self) -> None:
        samples, ready = self._shown
        self.samples.append({sample.metric.name: sample.value for sample in samples()})
        self.ready.append(ready())

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


def beats(kafka: Kafka, looks: int, pages: Any = None) -> list[JobManagerBeat]:
    """Run a JobManager that is stopped after so many turns; return its heartbeats."""
    signals: Any = Signals(looks)
    admin: Any = kafka.client()
    JobManagerDaemon(CONFIG, admin, signals, pages or Monitoring(CONFIG)).run()
    messages = map(Codec(CONFIG.topic_names).decode, kafka.reports)
    return [message for message in messages if isinstance(message, JobManagerBeat)]


def test_console_gets_what_is_read_and_what_the_job_runs(kafka: Kafka) -> None:
    tap = Tap(2)
    record = ControlRecord("heartbeat_topic", b"0", b"not a heartbeat")
    kafka.brings = [record]
    signals, admin = cast(Any, Signals(1)), cast(Any, kafka.client())
    JobManagerDaemon(CONFIG, admin, signals, Monitoring(CONFIG), tap).run()
    assert [read for read, _ in tap.take()] == [record]
    assert tap.deployed is Rollout.deployed


def test_job_manager_that_is_stopped_says_so_in_its_last_heartbeat(kafka: Kafka) -> None:
    *others, last = beats(kafka, looks=3)
    assert [beat.leaving for beat in others] == [False]
    assert [beat.findings for beat in others] == [Rollout.findings]
    assert [beat.unread for beat in others] == [Rollout.unread]
    assert (last.epoch, last.leaving, last.owners) == (EPOCH, True, {TaskId("P", 0): None})


def test_job_manager_that_never_led_stops_without_a_word(kafka: Kafka) -> None:
    kafka.answers = False
    assert beats(kafka, looks=3) == []


def test_errors_of_reports_are_looked_for_in_each_turn(kafka: Kafka) -> None:
    beats(kafka, looks=3)
    assert kafka.polls == 3


def test_job_manager_is_ready_once_it_leads(kafka: Kafka) -> None:
    pages = Pages()
    beats(kafka, looks=2, pages=pages)
    assert pages.ready == [["it does not lead: it is CANDIDATE"], []]


def test_job_manager_that_kafka_does_not_answer_is_not_ready(kafka: Kafka) -> None:
    kafka.answers = False
    pages = Pages()
    beats(kafka, looks=3, pages=pages)
    assert all(pages.ready)


def test_commands_that_kafka_does_not_take_are_a_finding_until_it_takes_some(kafka: Kafka) -> None:
    hello = Heartbeat(Report(0, "a", threads=1, beat=1))
    # The first turn only takes the lead.
    kafka.later = [[], Codec(CONFIG.topic_names).encode(hello, 0)]
    kafka.refusals = 1
    pages = Pages()
    beats(kafka, looks=4, pages=pages)
    known = len(Rollout.findings)
    assert [sample["jobmanager_findings"] for sample in pages.samples] == [
        *(known, known, known + 1, known)
    ]


def test_task_managers_that_follow_a_later_epoch_are_a_finding(kafka: Kafka) -> None:
    hello = Heartbeat(Report(0, "a", threads=1, beat=1, epoch=EPOCH + 5))
    kafka.later = [[], Codec(CONFIG.topic_names).encode(hello, 0)]
    pages = Pages()
    beats(kafka, looks=3, pages=pages)
    known = len(Rollout.findings)
    assert [each["jobmanager_findings"] for each in pages.samples] == [known, known, known + 1]


def test_other_interval_between_heartbeats_is_a_finding(kafka: Kafka) -> None:
    codec, own_ms = Codec(CONFIG.topic_names), CONFIG.heartbeat_interval_ms
    said = (0, 10 * own_ms, 10 * own_ms, own_ms)
    reports = [Report(0, "a", 1, beat, interval_ms=its_ms) for beat, its_ms in enumerate(said)]
    kafka.later = [[], *(codec.encode(Heartbeat(report), 0) for report in reports)]
    pages = Pages()
    with capture_logs() as logs:
        beats(kafka, looks=6, pages=pages)
    known = len(Rollout.findings)
    assert [each["jobmanager_findings"] for each in pages.samples] == [
        *(known, known, known, known + 1, known + 1, known)
    ]
    assert [each["event"] for each in logs if "heartbeat_interval_ms" in each["event"]] == [
        "TaskManager 0 has heartbeat_interval_ms 10000, and the JobManager 1000: give all daemons "
        "the same, or a running one may count as down"
    ]


def test_job_manager_shows_what_it_knows(kafka: Kafka) -> None:
    pages = Pages()
    beats(kafka, looks=3, pages=pages)
    first, *_, last = pages.samples
    assert (first["jobmanager_epoch"], last["jobmanager_epoch"]) == (-1, EPOCH)
    assert (first["jobmanager_heartbeats_sent_total"], last["jobmanager_tasks_without_owner"]) == (
        0,
        1,
    )
    assert last["jobmanager_pipeline_version"] == Rollout.deployed.version.number


def test_reports_are_counted_only_for_ids_that_a_task_manager_may_have(kafka: Kafka) -> None:
    codec = Codec(CONFIG.topic_names)
    reports = [Report(tm_id, "a", threads=1, beat=1) for tm_id in (0, 0, 1, 77)]
    kafka.brings = [r for report in reports for r in codec.encode(Heartbeat(report), 0)]
    pages = Pages()
    beats(kafka, looks=3, pages=pages)
    assert pages.samples[-1]["jobmanager_heartbeats_received_total"] == 2


def test_different_code_is_logged_once_and_when_it_is_over(kafka: Kafka) -> None:
    config = replace(CONFIG, tm_number=2)
    codec = Codec(config.topic_names)
    versions = [(0, "a"), (1, "b"), (0, "a"), (1, "b")]
    reports = [
        *(
            Report(tm_id, str(tm_id), 1, n, code={"shop": v})
            for n, (tm_id, v) in enumerate(versions)
        ),
        Report(1, "1", 1, 9, leaving=True),
    ]
    records = [r for report in reports for r in codec.encode(Heartbeat(report), 0)]
    # The first turn only takes the lead.
    kafka.later = [[], records]
    signals, admin = cast(Any, Signals(4)), cast(Any, kafka.client())
    with capture_logs() as logs:
        JobManagerDaemon(config, admin, signals, Monitoring(config)).run()
    said = [entry["event"] for entry in logs if "code of the module" in entry["event"]]
    assert said == [
        'the TaskManagers run different code of the module "shop" (0: a; 1: b)',
        "all TaskManagers run the same code of the module again",
    ]

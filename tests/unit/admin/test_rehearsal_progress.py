"""What is published of a rehearsal, step by step, and when it ends early."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kafka_pipeline.admin.rehearsal.progress import Progress, published
from kafka_pipeline.admin.signals import Interrupted
from kafka_pipeline.common.cluster.cluster_status import ClusterStatus
from kafka_pipeline.common.errors import PipelineError, UnavailableError
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.operations.rehearsal import publication
from kafka_pipeline.operations.rehearsal.comparer import Side
from kafka_pipeline.operations.rehearsal.report import Report
from tests.console_rehearsal import pipelines, report
from tests.console_sample import SampleJob, config


class Kafka:
    """Keeps what is written, and knows no topics."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def ensure_topics(self, _: Any) -> None: ...

    def write(self, records: Sequence[ControlRecord]) -> None:
        self.written += [json.loads(record.value) for record in records]

    def close(self, _: float) -> None: ...

    @property
    def phases(self) -> list[str]:
        return [each["phase"] for each in self.written]


class Compared:
    """A comparison with its report, and a manifest: version 3 rested for 1.8 s."""

    number = 3
    stopped_ms = 1800
    pipeline = pipelines()[0]

    def status(self, _: Side) -> ClusterStatus:
        return SampleJob().run(1).status

    def report(self, job: str, old_version: int, rested_ms: int) -> Report:
        found = report("secret key", "secret")
        return replace(found, job=job, old_version=old_version, rested_ms=rested_ms)

    def pipeline_version(self) -> Compared:
        return self


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    monkeypatch.setattr(publication, "ReportWriter", lambda _: made)
    return made


@contextmanager
def rehearsing(kafka: Kafka, *, console_records: bool = False) -> Iterator[Progress]:
    admin: Any = kafka
    settings = replace(config(), console_records=console_records)
    with published(settings, admin, *pipelines()) as progress:
        yield progress


@pytest.mark.parametrize("console_records", [True, False])
def test_each_step_is_published_and_records_only_if_the_console_may_show_them(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, console_records: bool
) -> None:
    found: Any = Compared()
    with rehearsing(kafka, console_records=console_records) as progress:
        progress.starts(found)
        progress.compares(until_ms=99)
        progress.look(found, found)
        monkeypatch.setattr(publication, "PUBLISH_S", 0.0)
        progress.look(found, found)
        assert progress.end(found, found).old_version == 3
    assert kafka.phases == ["saving", "starting", "comparing", "comparing", "ended"]
    first, *_, last = kafka.written
    changes = {each["id"]: each.get("change") for each in first["versions"]["new"]["processors"]}
    assert changes == {"Clean": "changed", "Price": "changed", "Cities": None, "Fraud": "added"}
    assert last["until_ms"] == 99
    assert last["report"]["rested_ms"] == 1800
    assert last["figures"]["new"]["Price"]["states"] == {"RUNNING": 4}
    assert ("secret key" in json.dumps(kafka.written)) is console_records


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnavailableError("Kafka is away"), "Kafka is away"),
        (PipelineError("quotes data", shown="shows none"), "shows none"),
        (Interrupted(2), "it was ended before anything was compared"),
    ],
)
def test_why_a_rehearsal_ended_early_is_published(
    kafka: Kafka, error: BaseException, reason: str
) -> None:
    with pytest.raises(type(error)), rehearsing(kafka):
        raise error
    assert kafka.phases == ["saving", "failed"]
    assert kafka.written[-1]["reason"] == reason

"""What a rehearsal publishes: its record, who may have written it, and how much there is of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from kafka_pipeline.common.errors import UnavailableError
from kafka_pipeline.common.protocol.messages import MAX_RECORD_BYTES, ControlRecord
from kafka_pipeline.common.security.control_key import ControlKey
from kafka_pipeline.common.topics import TopicSpec
from kafka_pipeline.operations.rehearsal import publication
from kafka_pipeline.operations.rehearsal.publication import (
    Phase,
    Publisher,
    parsed,
    read_publication,
    record_of,
    remove_publication,
)
from tests.console_rehearsal import rehearsed
from tests.console_sample import config

TOPIC = "rehearsal_topic_shop"
SIGNED = replace(config(), control_key=ControlKey((b"k" * 32,)))


class Brokers:
    """The topics of a cluster."""

    def __init__(self, topics: Iterable[str] = ()) -> None:
        self.left = set(topics)

    def finds(self, topic: str) -> bool:
        return topic in self.left

    def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        self.left |= {spec.name for spec in specs}

    def partition_counts(self, names: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(self.left.intersection(names), 1)

    def delete_topics(self, names: Collection[str]) -> None:
        self.left -= set(names)


class Writer:
    """Keeps the values of what is written."""

    def __init__(self, _: Any = None) -> None:
        self.written: list[dict[str, Any]] = []

    def write(self, records: Sequence[ControlRecord]) -> None:
        self.written += [json.loads(record.value) for record in records]


def test_a_publication_is_read_as_it_was_written() -> None:
    found = rehearsed()
    record = replace(record_of(config(), found.publication), timestamp_ms=found.written_at_ms)
    assert record.topic == TOPIC
    assert parsed(config(), record) == found


def test_with_a_key_only_a_signed_publication_counts() -> None:
    found = rehearsed()
    assert parsed(SIGNED, record_of(SIGNED, found.publication)).publication == found.publication
    with pytest.raises(UnavailableError, match="not signed"):
        parsed(SIGNED, record_of(config(), found.publication))


def test_fields_of_a_later_version_are_ignored() -> None:
    found = rehearsed()
    record = record_of(config(), found.publication)
    later = json.loads(record.value)
    later["new"] = later["report"]["new"] = later["versions"]["old"]["links"][0]["new"] = 1
    read = parsed(config(), replace(record, value=json.dumps(later).encode()))
    assert read.publication == found.publication


@pytest.mark.parametrize("value", [b"no JSON", b"{}", b'{"phase": "dreaming"}'])
def test_what_is_not_a_publication_is_refused(value: bytes) -> None:
    with pytest.raises(UnavailableError, match=f"topic {TOPIC} has no rehearsal that can be read"):
        parsed(config(), ControlRecord(TOPIC, b"", value))


def test_a_publication_has_fewer_examples_rather_than_being_too_large() -> None:
    found = rehearsed().publication
    assert found.report is not None
    (name, output), _ = found.report.outputs.items()
    long = structs.replace(output.examples[0], key="k" * 3000)
    outputs = {f"{name}{n}": structs.replace(output, examples=(long,) * 20) for n in range(100)}
    large = structs.replace(found, report=structs.replace(found.report, outputs=outputs))
    record = record_of(config(), large)
    assert len(record.value) < MAX_RECORD_BYTES
    written = parsed(config(), record).publication.report
    assert written is not None
    assert [len(each.examples) for each in written.outputs.values()] == [1] * 100
    assert {each.equal for each in written.outputs.values()} == {output.equal}


def published(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> tuple[Publisher, Writer]:
    writer = Writer()
    monkeypatch.setattr(publication, "ReportWriter", lambda _: writer)
    admin: Any = brokers
    first = structs.replace(rehearsed().publication, phase=Phase.SAVING, report=None)
    return Publisher(config(), admin, first), writer


def test_each_step_is_published_and_why_a_rehearsal_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers()
    publisher, writer = published(monkeypatch, brokers)
    publisher.update(phase=Phase.STARTING)
    publisher.fail_unless_ended("no room")
    assert brokers.left == {TOPIC}
    assert [each["phase"] for each in writer.written] == ["saving", "starting", "failed"]
    assert writer.written[-1]["reason"] == "no room"


def test_a_rehearsal_that_has_ended_does_not_fail_later(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, writer = published(monkeypatch, Brokers())
    publisher.update(phase=Phase.ENDED)
    publisher.fail_unless_ended("its topics cannot be deleted")
    assert [each["phase"] for each in writer.written] == ["saving", "ended"]


def test_nothing_is_read_without_a_rehearsal() -> None:
    brokers: Any = Brokers(["heartbeat_topic_shop"])
    assert read_publication(config(), brokers) is None


def test_what_was_published_is_deleted_alone() -> None:
    brokers: Any = Brokers([TOPIC, "rehearsal_topic_shop-rehearsal", "rehearsal_topic"])
    assert remove_publication(config(), brokers) == [TOPIC]
    assert brokers.left == {"rehearsal_topic_shop-rehearsal", "rehearsal_topic"}
    assert remove_publication(config(), brokers) == []

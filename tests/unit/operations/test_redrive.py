"""What a redrive reads before it sends letters back, without a Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.record_batch import KafkaHeaders, OutputRecord, RecordBatch
from kafka_pipeline.deployment.desired_state import Deployment, PipelineVersion, Wish, records
from kafka_pipeline.operations import redrive
from kafka_pipeline.operations.dead_letters import Wanted, marker
from kafka_pipeline.operations.redrive import DeadLetterTopics
from kafka_pipeline.operations.savepoints.sharding import with_parallelism
from kafka_pipeline.streams.partitioning import default_partition
from tests.unit.operations.test_dead_letters import batch, errors
from tests.unit.streams.pipeline.loading import CONFIG, load

LETTERS = batch([errors(0), errors(1)])
NOTE = batch([marker("redriven", [0])], start=2)


class Mover:
    """Knows the end by a write, and keeps what is written."""

    def __init__(self) -> None:
        self.written: list[OutputRecord] = []

    def find_ends(self, places: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 3)

    def write(self, records: Iterable[OutputRecord]) -> None:
        self.written += records


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> DeadLetterTopics:
    """Topics of which a leader that answers knows two letters, and not the note that follows."""

    def read(_config: Any, _admin: Any, ends: Mapping[Partition, int]) -> list[RecordBatch]:
        assert list(ends) == [("dead", 0)]
        return [LETTERS, NOTE][: ends["dead", 0] - 1]

    monkeypatch.setattr(redrive, "read_up_to", read)
    made = DeadLetterTopics.__new__(DeadLetterTopics)
    made.topics = {"Adder": "dead"}
    parts = {
        "_config": None,
        "_existing": {"dead": 1, "arc": 2},
        "_read_now": {"arc"},
        "_former_counts": {},
        "_admin": SimpleNamespace(
            high_watermarks=lambda places: dict.fromkeys(places, 2), delete_before=lambda _: None
        ),
    }
    for name, part in parts.items():
        setattr(made, name, part)
    return made


BEFORE = """
- {id: A, type: forward, to: [B]}
- {id: B, type: count, to: [sink], on_error: dead_letter}
"""
AFTER = BEFORE.replace("id: B,", "id: C, was: B,").replace("[B]", "[C]")


def of_job(monkeypatch: pytest.MonkeyPatch, *ran: Pipeline) -> tuple[DeadLetterTopics, Mover]:
    """Return the topics of a job that has run these pipelines, of which the last one runs."""
    deployment = Deployment(CONFIG.topic_names)
    versions = [PipelineVersion(n, each, "", 1, "me@x") for n, each in enumerate(ran, 1)]
    for record in records(deployment.names, Wish(version=len(ran)), *versions):
        deployment.take(record)
    monkeypatch.setattr(redrive, "read_deployment", lambda *_: deployment)
    existing = {spec.name: spec.partitions for each in ran for spec in each.data_topics(1)}
    monkeypatch.setattr(redrive, "connected", lambda _: SimpleNamespace(topics=lambda: existing))
    found, mover = DeadLetterTopics(CONFIG), Mover()
    monkeypatch.setattr(found, "_mover", lambda: mover)
    return found, mover


def letter_from(monkeypatch: pytest.MonkeyPatch, topic: str, partition: int = 1) -> None:
    """Have one letter be there, of the key k."""
    given = {
        "__streams.errors.topic": topic.encode(),
        "__streams.errors.partition": b"%d" % partition,
    }
    headers: KafkaHeaders = [(name, given.get(name, value)) for name, value in errors(0)]
    monkeypatch.setattr(redrive, "read_up_to", lambda *_: [batch([headers])])


def test_letter_is_not_sent_to_a_topic_that_a_former_version_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic is still there, until somebody deletes what the version has left."""
    found, mover = of_job(monkeypatch, load(BEFORE, CONFIG), load(AFTER, CONFIG))
    for origin in ("in", "A_C"):
        letter_from(monkeypatch, origin)
        assert found.redrive(Wanted(processors=["B"])) == 1
    assert [each[:4] for each in mover.written][::2] == [
        ("in", b"k", b"v0", 1),
        ("A_C", b"k", b"v0", 1),
    ]
    letter_from(monkeypatch, "A_B")
    with pytest.raises(ConfigError, match=r"B:0:0 came from A_B, .* purge .* by --topic A_B"):
        found.redrive(Wanted(processors=["B"]))
    assert found.redrive(Wanted(topics=["A_C"])) == 0


@pytest.mark.parametrize(("before", "after", "own"), [(2, 7, 3), (7, 2, 0)])
def test_letter_goes_where_its_key_goes_since_a_rescale(
    monkeypatch: pytest.MonkeyPatch, before: int, after: int, own: int
) -> None:
    """The state of its key is there. What had a partition of its own, or a source, keeps it."""
    first = load(BEFORE, CONFIG)
    ran = [with_parallelism(first, count) for count in (before, after)]
    by_key, now = default_partition(b"k", before), default_partition(b"k", after)
    assert by_key != now
    found, mover = of_job(monkeypatch, *ran)
    for topic, partition in (("A_B", by_key), ("A_B", own), ("in", 1)):
        letter_from(monkeypatch, topic, partition)
        assert found.redrive(Wanted(processors=["B"])) == 1
    assert [(topic, number) for topic, _, _, number, *_ in mover.written][::2] == [
        ("A_B", now),
        ("A_B", own),
        ("in", 1),
    ]


@pytest.mark.parametrize("act", ["redrive", "purge"])
def test_letters_that_a_leader_does_not_know_to_be_dealt_with_are_left_alone(
    topics: DeadLetterTopics, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """A leader that is cut off from the other brokers answers that the topic ends before a note."""
    mover = Mover()
    monkeypatch.setattr(topics, "_mover", lambda: mover)
    assert [letter.id.offset for letter in topics.find(Wanted())] == [0, 1]
    assert getattr(topics, act)(Wanted()) == 1
    notes = [headers for topic, *_, headers in mover.written if topic == "dead"]
    assert notes == [marker("redriven" if act == "redrive" else "purged", [1])]

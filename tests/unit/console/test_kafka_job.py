"""What the console refuses to do in Kafka, and which records it shows."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from kafka_pipeline.common.config.registry_settings import RegistrySettings
from kafka_pipeline.common.errors import ConfigError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.pipelines.pipeline import Pipeline
from kafka_pipeline.common.pipelines.processors import SOURCE, OnError
from kafka_pipeline.common.pipelines.serde_specs import SchemaSerde
from kafka_pipeline.common.pipelines.specs import SourceSpec
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.record_batch import RecordBatch
from kafka_pipeline.console import kafka_job
from kafka_pipeline.console.job import RecordQuery
from kafka_pipeline.console.kafka_job import MOST_OFFSETS, KafkaJob
from kafka_pipeline.deployment.desired_state import (
    Deployment,
    PipelineVersion,
    StopOrder,
    Wish,
    records,
)
from kafka_pipeline.operations.dead_letters import DeadLetter, LetterId, Wanted
from kafka_pipeline.operations.record_lines import RecordLines
from kafka_pipeline.operations.starts import Earliest, Latest, Start
from kafka_pipeline.streams.schema_registry import SchemaRegistry
from kafka_pipeline.streams.schema_registry import avro as avro_serde
from tests.console_job import dead_letter
from tests.console_sample import config, processors
from tests.schema_registry import standing_in

DEAD = ("Price_dead_letter_shop", 0)
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
OTHER = ("Other_dead_letter_shop", 0)


class FakeTopics:
    """Dead letters of two processors, in one partition each."""

    def __init__(self, of_price: int, of_other: int) -> None:
        self._bounds = {DEAD: (7, 7 + of_price), OTHER: (0, of_other)}
        self.purged: list[Wanted] = []

    def bounds(self) -> dict[Partition, tuple[int, int]]:
        return self._bounds

    def places(self) -> dict[Partition, str]:
        return {DEAD: "Price", OTHER: "Other"}

    def find(self, wanted: Wanted) -> list[DeadLetter]:
        return [each for each in map(dead_letter, range(6)) if wanted.has(each)]

    def purge(self, wanted: Wanted) -> int:
        self.purged.append(wanted)
        return 2


def job_with(topics: FakeTopics, patch: pytest.MonkeyPatch) -> KafkaJob:
    patch.setattr(kafka_job, "DeadLetterTopics", lambda _: topics)
    return KafkaJob(config())


def test_a_dry_run_says_how_many_letters_there_are_and_up_to_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = job_with(FakeTopics(6, 0), monkeypatch)
    assert job.deal("purge", Wanted(), dry_run=True) == {
        "count": 6,
        "by_processor": {"Price": 6},
        "before": {"Price": {"0": 2, "1": 2, "2": 1, "3": 1}},
    }


def test_letters_are_dealt_with_if_they_fit_into_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = FakeTopics(MOST_OFFSETS, 1)
    job = job_with(topics, monkeypatch)
    with pytest.raises(ConfigError, match=r"50,001 dead letters.*choose one processor, or use"):
        job.deal("purge", Wanted(), dry_run=False)
    assert topics.purged == []
    assert job.deal("purge", Wanted(processors=["Price"]), dry_run=False) == {"count": 2}


class FakeRecords:
    """A topic of two partitions whose records are as old as their number says."""

    def __init__(self, _config: Any, _topic: str, lines: RecordLines) -> None:
        self.lines = lines

    def read(
        self, start: Start, partitions: Sequence[int], *, most: int | None
    ) -> Iterator[tuple[RecordBatch, int]]:
        del start, partitions
        for partition, times in enumerate(([1, 4, 5], [2, 3, 6])):
            values = [b"%d" % at if at != 6 else b"x" * 30_000 for at in times]
            batch = RecordBatch("orders", partition, [None] * 3, values, times, [0, 1, 2], None)
            yield from ((batch, index) for index in range(3 if most is None else min(most, 3)))


@pytest.fixture
def deployment() -> Deployment:
    names = config().topic_names
    version = PipelineVersion(1, Pipeline(processors(), names, 2), "", 0, "ada@alpha")
    deployment = Deployment(names)
    for record in records(names, Wish(version=1), version):
        assert isinstance(record, ControlRecord)
        deployment.take(record)
    return deployment


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, deployment: Deployment) -> KafkaJob:
    monkeypatch.setattr(kafka_job, "connected", lambda _: None)
    monkeypatch.setattr(kafka_job, "read_deployment", lambda *_: deployment)
    monkeypatch.setattr(kafka_job, "TopicRecords", FakeRecords)
    return KafkaJob(config())


def values(found: dict[str, Any]) -> list[str]:
    return [record["value"] for record in found["records"]]


def test_the_newest_records_of_all_partitions_are_shown_and_long_ones_cut_off(
    job: KafkaJob,
) -> None:
    found = job.records(RecordQuery("orders", Latest(6), 2, newest=True))
    assert values(found) == ["5", f"{'x' * 20_000}…"]


def test_records_are_shown_from_the_start_on(job: KafkaJob) -> None:
    assert values(job.records(RecordQuery("orders", Earliest(), 2))) == ["1", "4", "2", "3"]


@pytest.mark.parametrize("serde", ["json", "json_decimals", "integer"])
def test_keys_and_values_are_text_as_browsers_round_numbers(job: KafkaJob, serde: str) -> None:
    found = job.records(RecordQuery("orders", Earliest(), 1, value=serde))
    assert values(found) == ["1", "2"]


class HalfAPair(FakeRecords):
    """A topic of one record, whose JSON has half of a surrogate pair."""

    def read(
        self, start: Start, partitions: Sequence[int], *, most: int | None
    ) -> Iterator[tuple[RecordBatch, int]]:
        del start, partitions, most
        value = rb'{"a": "\ud800"}'
        yield RecordBatch("orders", 0, [None], [value], [1], [0], None), 0


def test_half_of_a_surrogate_pair_is_escaped(
    job: KafkaJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No UTF-8 has it: the answer with all records of the page failed."""
    monkeypatch.setattr(kafka_job, "TopicRecords", HalfAPair)
    found = job.records(RecordQuery("orders", Earliest(), 1, value="json"))
    assert values(found) == [r'{"a": "\ud800"}']
    assert json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("topic", ["heartbeat_topic_shop", "other", ""])
def test_only_topics_of_the_pipeline_are_shown(job: KafkaJob, topic: str) -> None:
    with pytest.raises(ConfigError, match="the job has no topic"):
        job.records(RecordQuery(topic, Earliest(), 2))


def test_nothing_is_asked_while_a_savepoint_is_made(job: KafkaJob, deployment: Deployment) -> None:
    assert deployment.wish is not None
    stop = StopOrder(purpose="savepoint", token="t", by="ada@alpha")
    deployment.wish = deployment.wish.with_stop(stop)
    with pytest.raises(ConfigError, match="ada@alpha is making a savepoint"):
        job.ask("resume", [], dry_run=True)


def test_a_dry_run_of_a_restart_counts_the_tasks(job: KafkaJob) -> None:
    assert job.ask("restart", ["Price"], dry_run=True) == {"processors": ["Price"], "tasks": 2}
    with pytest.raises(ConfigError, match='no processor or task "Pric", did you mean "Price"'):
        job.ask("restart", ["Pric"], dry_run=True)


def test_avro_of_the_pipeline_is_shown_as_json_or_as_it_is(
    job: KafkaJob, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in dead letters. A registry that is away is asked once."""
    names = config().topic_names
    clean = processors()[0]
    avro = SourceSpec(value=SchemaSerde(kind="avro"))
    clean = replace(clean, sources={SOURCE: avro}, on_error=OnError.DEAD_LETTER)
    pipeline = Pipeline((clean, *processors()[1:]), names, 2)
    version = PipelineVersion(2, pipeline, "", 0, "ada@alpha")
    for record in records(names, Wish(version=2), version):
        assert isinstance(record, ControlRecord)
        deployment.take(record)
    dead = names.dead_letter("Clean")
    with standing_in() as registry:
        fields = [{"name": "price", "type": MONEY}]
        schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
        orders = avro_serde(SchemaRegistry(registry.url), f"{names.source}-value", schema)
        good = orders.serialize({"price": Decimal("1.50")})
        given = [good, b"\0\0\0\0\x63\2", b"text", b"\xff"]
        shown = ['{"price":1.50}', "AAAAAGMC", "text", "/w=="]

        class Records:
            def __init__(self, _config: Any, topic: str, lines: RecordLines) -> None:
                self.lines, self.topic = lines, topic

            def read(self, *_: Any, most: int | None) -> Iterator[tuple[RecordBatch, int]]:
                keys, numbers = [b"k"] * len(given), [*range(len(given))]
                batch = RecordBatch(self.topic, 0, keys, given, numbers, numbers, None)
                return ((batch, index) for index in numbers)

        monkeypatch.setattr(kafka_job, "TopicRecords", Records)
        job = KafkaJob(replace(config(), schema_registry=RegistrySettings(registry.url)))
        for topic in (names.source, dead):
            assert values(job.records(RecordQuery(topic, Earliest(), 4))) == shown
        raw = job.records(RecordQuery(dead, Earliest(), 4, value="bytes"))
        assert values(raw)[0] == b64encode(good).decode()
        letter = replace(dead_letter(1), value=good, came_from=(names.source, 0, 7))
        monkeypatch.setattr(kafka_job, "DeadLetterTopics", lambda _: Letters(letter))
        assert job.letter(letter.id).value == b'{"price":1.50}'
        other = replace(letter, came_from=("of-others", 0, 7))
        monkeypatch.setattr(kafka_job, "DeadLetterTopics", lambda _: Letters(other))
        assert job.letter(letter.id).value == good
        registry.status = 503
        registry.requests.clear()
        later = KafkaJob(
            replace(config(), schema_registry=RegistrySettings(registry.url, timeout_ms=4999))
        )
        given[0] = given[1]
        found = values(later.records(RecordQuery(dead, Earliest(), 4)))
        assert found == [shown[1], *shown[1:]]
        assert len(registry.requests) == 1


class Letters(NamedTuple):
    letter: DeadLetter

    def read(self, _id: LetterId) -> DeadLetter:
        return self.letter

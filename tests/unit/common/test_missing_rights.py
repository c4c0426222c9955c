"""Kafka's errors about rights name nothing; ours say which right is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]
from structlog.testing import capture_logs

import kafka_pipeline.common.kafka.admin
import kafka_pipeline.common.kafka.control
from kafka_pipeline.common.errors import ConfigError, UnavailableError
from kafka_pipeline.common.kafka import control, data, managed_consumer
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import MissingRightError, TransactionFailedError, translate
from kafka_pipeline.common.kafka.control import CommandWriter
from kafka_pipeline.common.kafka.data import PartitionReader
from kafka_pipeline.common.kafka.lifeline import Lifeline
from kafka_pipeline.common.protocol.messages import ControlRecord
from kafka_pipeline.common.topics import TopicSpec
from tests.unit.common.config_texts import BASE, load
from tests.unit.common.fake_consumer import FakeConsumer, message

CONFIG = load(BASE)
NO_TOPIC = KafkaError.TOPIC_AUTHORIZATION_FAILED
NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
NO_ID = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def failure(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


# Groups.


class Searching(FakeConsumer):
    """A consumer that finds no coordinator until some calls later."""

    def __init__(self, calls: int, now_s: list[float]) -> None:
        super().__init__([])
        self._calls = calls
        self._now_s = now_s
        self.asked: list[float] = []

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.asked.append(timeout)
        if len(self.asked) <= self._calls:
            self._now_s[0] += timeout
            raise failure(KafkaError._TIMED_OUT)
        return [TopicPartition(tp.topic, tp.partition, 7) for tp in wanted]


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the only element."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def reader_of(consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch) -> PartitionReader:
    monkeypatch.setattr(
        managed_consumer, "connect_with_lifeline", lambda *_: (consumer, Lifeline())
    )
    monkeypatch.setattr(data, "client_config", lambda *_, **__: {"group.id": "orders"})
    unused: Any = None
    return PartitionReader(unused, "orders")


def test_a_group_whose_coordinator_may_not_be_asked_is_named_after_two_seconds(
    now_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka searches on, and reports it where records come."""
    consumer = Searching(99, now_s)
    consumer._messages.append(Message(error=KafkaError(NO_GROUP)))
    reader = reader_of(consumer, monkeypatch)
    with pytest.raises(MissingRightError, match="a right is missing, Describe of group orders "):
        reader.committed([("lines", 0)], 60)
    assert consumer.asked == [2.0]


def test_a_coordinator_that_is_away_is_waited_for_as_long_as_before(
    now_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Searching(99, now_s)
    with pytest.raises(TransactionFailedError):
        reader_of(consumer, monkeypatch).committed([("lines", 0)], 60)
    assert consumer.asked == [2, 4, 8, 16, 30]
    consumer = Searching(3, now_s)
    reader = reader_of(consumer, monkeypatch)
    assert reader.committed([("lines", 0)], 60)["lines", 0].offset == 7


def test_a_group_that_may_not_be_read_is_named(
    now_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(FakeConsumer):
        def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
            raise failure(NO_GROUP)

    with pytest.raises(MissingRightError, match="Describe of group orders"):
        reader_of(Refused([]), monkeypatch).committed([("lines", 0)], 60)


def test_records_are_read_without_the_group_and_the_log_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer([])
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 3})
    consumer._messages = [Message(error=KafkaError(NO_GROUP)), message(3)]
    with capture_logs() as logs:
        (batch,) = reader.fetch(10, 0).batches
    assert list(batch.offsets) == [3]
    ((said,),) = [(log["reason"],) for log in logs]
    assert "a right is missing, Describe of group orders " in said


def test_an_error_of_a_partition_names_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = FakeConsumer([])
    reader = reader_of(consumer, monkeypatch)
    reader.assign({("lines", 0): 3})
    consumer.report(NO_TOPIC, 3)
    (error,) = reader.fetch(10, 0).errors
    assert "a right is missing, Read of topic lines " in error.reason


# Topics.


def described(*allowed: AclOperation) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_result(SimpleNamespace(topic_id="id", authorized_operations=list(allowed)))
    return answer


def failed(code: int) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(failure(code))
    return answer


class FakeAdminClient:
    """Answers all requests for a topic with what a test gives."""

    answers: Mapping[str, Future[Any]] = {}

    def __init__(self, _settings: Mapping[str, Any]) -> None:
        pass

    def poll(self, _timeout_s: float) -> None:
        pass

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Future[Any]]:
        return {name: self.answers[name] for name in names.topic_names}

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        return {resource: self.answers[resource.name] for resource in resources}

    def list_offsets(self, places: Any, **_: Any) -> dict[TopicPartition, Future[Any]]:
        return {place: self.answers[place.topic] for place in places}

    def delete_topics(self, names: Collection[str], **_: Any) -> dict[str, Future[Any]]:
        return {name: self.answers[name] for name in names}


class Answering(FakeAdminClient):
    """Topics with some rights, all or none."""

    answers: Mapping[str, Future[Any]] = {
        "in": described(AclOperation.READ, AclOperation.DESCRIBE),
        "state": described(AclOperation.WRITE, AclOperation.DESCRIBE),
        "out": failed(NO_TOPIC),
        "gone": failed(KafkaError.UNKNOWN_TOPIC_OR_PART),
    }


class AlreadyThere(Answering):
    """All topics exist, but the list has only those that may be described."""

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"in": SimpleNamespace(partitions=[0])})

    def create_topics(self, specs: Any, **_: Any) -> dict[str, Future[Any]]:
        return {spec.topic: failed(KafkaError.TOPIC_ALREADY_EXISTS) for spec in specs}


def test_a_topic_that_only_looks_missing_is_not_taken_for_one_that_was_just_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its partitions are unknown: some would never be read."""
    monkeypatch.setattr(kafka_pipeline.common.kafka.admin, "AdminClient", AlreadyThere)
    admin = Admin(CONFIG)
    assert admin.ensure_topics([TopicSpec("in", 1, 1), TopicSpec("state", 1, 1)]) == []
    with pytest.raises(ConfigError, match=r"topic out exists, but .* Describe of topic out "):
        admin.ensure_topics([TopicSpec("out", 1, 1)])


def test_a_topic_that_may_not_be_described_is_not_taken_for_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_pipeline.common.kafka.admin, "AdminClient", AlreadyThere)
    admin = Admin(CONFIG)
    assert admin.finds("in")
    assert not admin.finds("gone")
    with pytest.raises(UnavailableError, match="a right is missing, Read of topic out "):
        admin.finds("out")


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    monkeypatch.setattr(kafka_pipeline.common.kafka.admin, "AdminClient", Answering)
    return Admin(CONFIG)


def test_only_what_is_missing_is_named(admin: Admin) -> None:
    found = admin.missing_rights(
        {
            "in": ["Read"],
            "state": ["Read", "Write", "DescribeConfigs"],
            "out": ["Write", "DescribeConfigs"],
            "gone": ["Read"],
        }
    )
    assert found == [
        "Read of topic state",
        "DescribeConfigs of topic state",
        "Write of topic out",
    ]


@pytest.mark.parametrize(
    ("ask", "right"),
    [
        (lambda admin: admin.topic_ids(["in", "out"]), "Describe of topic out"),
        (lambda admin: admin.topic_settings(["out"]), "DescribeConfigs of topic out"),
        (lambda admin: admin.high_watermarks([("out", 0)]), "Describe of topic out"),
        (lambda admin: admin.delete_topics(["gone", "out"]), "Delete of topic out"),
    ],
)
def test_a_request_for_several_topics_names_the_one_that_is_meant(
    admin: Admin, ask: Callable[[Admin], object], right: str
) -> None:
    with pytest.raises(MissingRightError, match=f"a right is missing, {right} "):
        ask(admin)


# Commands.


class RefusedProducer:
    """A producer that may not begin, or may not commit."""

    at_start: int | None = None
    at_commit: int | None = None

    def __init__(self, settings: Mapping[str, Any]) -> None:
        pass

    def init_transactions(self, _timeout_s: float) -> None:
        if self.at_start is not None:
            raise failure(self.at_start)

    def commit_transaction(self, _timeout_s: float) -> None:
        if self.at_commit is not None:
            raise failure(self.at_commit)

    def ignore(self, *_: Any, **__: Any) -> None:
        pass

    list_topics = begin_transaction = produce = poll = ignore


def test_the_id_of_commands_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(RefusedProducer):
        at_start = NO_ID

    monkeypatch.setattr(control, "Producer", Refused)
    with pytest.raises(MissingRightError, match="Write of transactional id shop/jobmanager "):
        CommandWriter(CONFIG, "shop/jobmanager")


def test_the_topic_that_takes_no_commands_is_named(
    monkeypatch: pytest.MonkeyPatch, admin: Admin
) -> None:
    class Refused(RefusedProducer):
        at_commit = NO_TOPIC

    monkeypatch.setattr(control, "Producer", Refused)
    writer = CommandWriter(CONFIG, "shop/jobmanager")
    records = [ControlRecord(topic, b"", b"", ()) for topic in ("state", "out")]
    with pytest.raises(MissingRightError, match="missing, Write of topic out "):
        writer.write(records)


def test_a_right_without_a_name_says_what_it_is_on() -> None:
    for code, on in (
        (NO_TOPIC, "on a topic"),
        (NO_GROUP, "on a consumer group"),
        (NO_ID, "Write of a transactional id"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "on the cluster"),
    ):
        error = translate(failure(code))
        assert isinstance(error, MissingRightError)
        assert f"(a right is missing, {on} (`pipeline acls` lists them): grant it" in str(error)

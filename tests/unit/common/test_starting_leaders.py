"""Offsets of partitions whose leader is starting: an answer that failed is not taken for a number.

A consumer's `get_watermark_offsets` would take it so, which once made a task believe that its state
topic was empty.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import KafkaError

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.control import ControlReader
from kafka_pipeline.common.kafka.offsets import Offsets
from tests.unit.common.config_texts import BASE, load
from tests.unit.common.mock_broker import LIST_OFFSETS, MockBroker

TOPIC = "state"
PLACE = (TOPIC, 0)
RECORDS = 10


@pytest.fixture(scope="module")
def broker() -> MockBroker:
    started = MockBroker()
    started.write(TOPIC, RECORDS)
    return started


@pytest.fixture
def config(broker: MockBroker) -> Config:
    return load(BASE.replace("9092", broker.bootstrap_servers.rpartition(":")[2]))


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.REQUEST_TIMED_OUT,
        # The connection breaks.
        KafkaError._TRANSPORT,
    ],
)
def test_offsets_are_asked_for_again(broker: MockBroker, config: Config, error: int) -> None:
    admin = Admin(config)
    broker.answer(LIST_OFFSETS, [error])
    assert admin.oldest_offsets([PLACE]) == {PLACE: 0}
    broker.answer(LIST_OFFSETS, [error])
    assert admin.high_watermarks([PLACE]) == {PLACE: RECORDS}
    broker.answer(LIST_OFFSETS, [error])
    assert admin.stable_ends([PLACE]) == {PLACE: RECORDS}
    broker.answer(LIST_OFFSETS, [error])
    assert Offsets(config, admin).stable_ends([PLACE]) == {}


def test_control_messages_are_read_from_their_history_on(
    broker: MockBroker, config: Config
) -> None:
    """Two requests are made, for the oldest record and for the end; the first one fails."""
    broker.answer(LIST_OFFSETS, [KafkaError.NOT_LEADER_FOR_PARTITION, 0])
    with closing(ControlReader(config, [TOPIC], history=3)) as reader:
        assert reader.ends == {TOPIC: RECORDS}
        assert [record.offset for record in reader.read(20)][:1] == [RECORDS - 3]

"""Positions behind records that an unclean election of a leader has taken away (KIP-320)."""

from __future__ import annotations

from contextlib import closing

import pytest

from kafka_pipeline.common.committed import Committed
from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.data import PartitionReader
from tests.unit.common.config_texts import BASE, load
from tests.unit.common.mock_broker import MockBroker
from tests.waiting import wait_until

PLACE = ("in", 0)
CUT = 5
"""Where the records of leader epoch 0 end; there are as many of epoch 1 behind them."""
TIMEOUT_S = 30


@pytest.fixture
def config() -> Config:
    brokers = MockBroker()
    brokers.create("in", 1)
    for _ in range(2):
        brokers.write("in", CUT)
        brokers.lead("in", 0, 1)
    servers = brokers.bootstrap_servers
    return load(f"{BASE}kafka: {{bootstrap.servers: '{servers}'}}\n")


@pytest.mark.parametrize(
    ("offset", "epoch", "is_lost"), [(CUT, 0, False), (CUT + 1, 0, True), (CUT + 1, 1, False)]
)
def test_position_of_an_epoch_that_ended_before_it_is_lost(
    config: Config, offset: int, epoch: int, is_lost: bool
) -> None:
    """Though the topic is longer: the records there are others than those that were read."""
    with closing(PartitionReader(config, "group")) as reader:
        found = reader.losses({PLACE: Committed(offset, leader_epoch=epoch)}, TIMEOUT_S)
        assert [error.partition for error in found] == [PLACE] * is_lost
        for error in found:
            assert not error.is_out_of_range
            assert f"log truncation detected at offset {offset}" in error.reason
            assert "the offset to continue from is not in the topic" in error.reason


def test_offset_that_was_never_there_is_not_certainly_lost(config: Config) -> None:
    """A leader that is cut off from the others may say so."""
    with closing(PartitionReader(config, "group")) as reader:
        (error,) = reader.losses({PLACE: Committed(99, leader_epoch=2)}, TIMEOUT_S)
        assert error.is_out_of_range


def test_epoch_that_the_leader_does_not_know_is_not_certainly_that_of_another_log(
    config: Config,
) -> None:
    """A leader that is cut off from the others does not know newer ones."""
    with closing(PartitionReader(config, "group")) as reader:
        (error,) = reader.losses({PLACE: Committed(CUT, leader_epoch=9)}, TIMEOUT_S)
        assert error.is_out_of_range
        assert "No epoch found" in error.reason


def test_epoch_of_the_last_records_is_known_while_they_are_read(config: Config) -> None:
    with closing(PartitionReader(config, "group")) as reader:
        reader.assign({PLACE: 0})
        read: list[int] = []

        def all_read() -> bool:
            for batch in reader.fetch(100, 0.1).batches:
                read.extend(batch.offsets)
            return len(read) == 2 * CUT

        wait_until(all_read)
        assert reader.leader_epoch(PLACE) == 1
        reader.unassign([PLACE])
        assert reader.leader_epoch(PLACE) == -1

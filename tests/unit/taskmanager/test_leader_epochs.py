"""Tasks whose inputs have lost records that were processed, and have grown since (KIP-320)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import TopicPartition

from kafka_pipeline.common.committed import NO_EPOCH, Committed
from kafka_pipeline.common.kafka.clients import (
    NonRetriableError,
    Partition,
    TransactionFailedError,
)
from kafka_pipeline.common.kafka.data import ReadError
from kafka_pipeline.taskmanager import offset_doubt
from kafka_pipeline.taskmanager.clients import Reader
from kafka_pipeline.taskmanager.offset_doubt import SURE_AFTER_S, SURE_ANSWERS
from tests.unit.taskmanager.fakes import FakeAdmin, FakeReader, batch
from tests.unit.taskmanager.noting import NotingProducer, NotingReader, assigned_to, start

INPUT = ("in", 0)
BEFORE, NOW, UNKNOWN = 3, 4, 5


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[Partition, Committed]]:
    """What readers were asked about; each says that it is lost. The leader's epoch is `NOW`."""
    found: list[Mapping[Partition, Committed]] = []

    def losses(_: object, positions: Mapping[Partition, Committed], __: float) -> list[ReadError]:
        found.append(positions)
        return [ReadError(place, "gone") for place in positions]

    def epochs(_: object, partitions: Collection[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, NOW)

    monkeypatch.setattr(NotingReader, "losses", losses, raising=False)
    monkeypatch.setattr(FakeAdmin, "leader_epochs", epochs, raising=False)
    return found


def commit_epoch(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    at = {INPUT: Committed(0, leader_epoch=epoch)}
    monkeypatch.setattr(NotingReader, "committed", lambda *_: at)


def test_task_whose_input_was_cut_before_its_position_does_not_go_on(
    monkeypatch: pytest.MonkeyPatch, asked: list[Mapping[Partition, Committed]]
) -> None:
    commit_epoch(monkeypatch, BEFORE)
    with pytest.raises(NonRetriableError, match=r"in\[0\]: gone"):
        start(assigned_to([], 0, monkeypatch))
    assert asked == [{INPUT: Committed(0, leader_epoch=BEFORE)}]


def test_task_with_an_epoch_of_another_cluster_fails_in_the_end(
    monkeypatch: pytest.MonkeyPatch, asked: list[Mapping[Partition, Committed]]
) -> None:
    """As after the loss of a cluster whose topics and offsets were copied into another one."""
    commit_epoch(monkeypatch, UNKNOWN)
    claim = [ReadError(INPUT, "No epoch found", is_out_of_range=True)]
    monkeypatch.setattr(NotingReader, "losses", lambda *_: claim)
    for end in ("oldest_offsets", "high_watermarks"):
        monkeypatch.setattr(FakeAdmin, end, lambda *_: {INPUT: 0}, raising=False)
    times_s = iter(range(0, 1000, int(SURE_AFTER_S / SURE_ANSWERS) + 1))
    monkeypatch.setattr(offset_doubt, "time", SimpleNamespace(monotonic=partial(next, times_s)))
    assigned = assigned_to([], 0, monkeypatch)
    for _ in range(SURE_ANSWERS - 1):
        with pytest.raises(TransactionFailedError, match="does not know the epoch 5"):
            start(assigned)
    with pytest.raises(NonRetriableError, match="the offset comes from another cluster"):
        start(assigned)


def test_leader_that_does_not_say_its_epoch_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, asked: list[Mapping[Partition, Committed]]
) -> None:
    commit_epoch(monkeypatch, BEFORE)
    monkeypatch.setattr(FakeAdmin, "leader_epochs", lambda *_: {INPUT: None})
    start(assigned_to([], 0, monkeypatch))
    assert asked == []


@pytest.mark.parametrize("epoch", [NOW, NO_EPOCH])
def test_nothing_is_fetched_to_check_a_position_of_the_same_epoch(
    monkeypatch: pytest.MonkeyPatch, asked: list[Mapping[Partition, Committed]], epoch: int
) -> None:
    commit_epoch(monkeypatch, epoch)
    start(assigned_to([], 0, monkeypatch))
    assert asked == []


def test_task_starts_again_if_only_one_leader_does_not_know_the_epoch(
    monkeypatch: pytest.MonkeyPatch, asked: list[Mapping[Partition, Committed]]
) -> None:
    commit_epoch(monkeypatch, BEFORE)
    claim = [ReadError(INPUT, "no such offset", is_out_of_range=True)]
    monkeypatch.setattr(NotingReader, "losses", lambda *_: claim)
    with pytest.raises(TransactionFailedError, match="does not know the epoch 3"):
        start(assigned_to([], 0, monkeypatch))


def test_offsets_are_committed_with_the_epoch_of_the_records_before_them(
    monkeypatch: pytest.MonkeyPatch, asked: list[Mapping[Partition, Committed]]
) -> None:
    committed: list[int | None] = []

    def note(_: object, places: Sequence[TopicPartition], *rest: object) -> None:
        committed.extend(place.leader_epoch for place in places)

    monkeypatch.setattr(NotingProducer, "send_offsets_to_transaction", note)
    commit_epoch(monkeypatch, NOW)
    task = start(assigned_to([], 0, monkeypatch))
    task.refresh()
    reader = FakeReader()
    reader.epoch = NOW + 1
    task.readers[INPUT] = cast("Reader", reader)
    task.add(batch(0))
    task.turn(inf)
    task.commit()
    assert committed == [NOW, NOW + 1]

"""Finds where partitions end, as only a leader can say whose replicas follow it."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import closing

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError, UnavailableError
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.kafka.writer_rights import named

_TIMEOUT_S = 30.0
_MARKERS_TIMEOUT_S = 60
_LOOK_S = 0.3


def proven_ends(
    config: Config, transactional_id: str, partitions: Collection[Partition]
) -> dict[Partition, int]:
    """Return the end of each partition, once all who write to it are fenced.

    A leader that is cut off may answer with an end that is too early, and looks right. But it
    cannot get a record acknowledged (`acks=all`). So this writes one to each partition, in a
    transaction that is aborted: no reader of committed records sees it. Its offset is the end.
    What is before may belong to transactions whose ends are not written yet.

    Fences older producers of `transactional_id`. Blocks for up to 30 s, twice. Raises `FencedError`
    if somebody else fences this one, `NonRetriableError` if a right is missing, and
    `TransactionFailedError` if a partition takes no record in time: ask again later.
    """
    with closing(TaskProducer(config, transactional_id, {})) as producer:
        try:
            producer.fence(_TIMEOUT_S)
            return producer.find_ends(partitions)
        except EngineError as error:
            topics = sorted({topic for topic, _ in partitions})
            raise named(error, config, transactional_id, topics) from error


def settled_ends(
    config: Config, admin: Admin, transactional_id: str, partitions: Sequence[Partition]
) -> dict[Partition, int]:
    """Return `proven_ends` once all transactions that had begun before are complete.

    The ends of transactions that a fence has aborted are written soon after it has returned. Blocks
    for up to 60 s more, and then raises `UnavailableError`. Otherwise raises as `proven_ends`.
    """
    if not partitions:
        return {}
    ends = proven_ends(config, transactional_id, partitions)
    deadline_s = time.monotonic() + _MARKERS_TIMEOUT_S
    while True:
        stable = admin.stable_ends(partitions)
        hanging = [place for place in partitions if stable[place] < ends[place]]
        if not hanging:
            return ends
        if time.monotonic() > deadline_s:
            topic, number = hanging[0]
            raise UnavailableError(
                f"a transaction stays open in {topic}[{number}], or its leader is cut off from the "
                "other brokers: try again later"
            )
        time.sleep(_LOOK_S)

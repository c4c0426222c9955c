"""Finds where partitions end, as only a leader can say whose replicas follow it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.errors import EngineError
from kafka_pipeline.common.kafka.clients import Partition
from kafka_pipeline.common.kafka.task_producer import TaskProducer
from kafka_pipeline.common.kafka.writer_rights import named

_TIMEOUT_S = 30.0


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

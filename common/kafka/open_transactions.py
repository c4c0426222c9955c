"""Finds the open transactions that block readers of committed records."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

from kafka_pipeline.common.config.config import Config
from kafka_pipeline.common.kafka.admin import Admin
from kafka_pipeline.common.kafka.clients import Partition, client_config, connect

_ANSWER_S = 4.0
_POLL_S = 0.2


class Held(NamedTuple):
    """A partition with an open transaction, whose first record is at the last stable offset.

    Readers of committed records see nothing from `stable_end` on. `end` is the high watermark.
    """

    stable_end: int
    end: int


def held_partitions(admin: Admin, partitions: Collection[Partition]) -> dict[Partition, Held]:
    """Return the partitions that have an open transaction now. Raises as `Admin`."""
    asked = list(partitions)
    if not asked:
        return {}
    # In this order: records between the two requests can only raise the last stable offset.
    ends = admin.high_watermarks(asked)
    stable = admin.stable_ends(asked)
    return {each: Held(stable[each], ends[each]) for each in asked if stable[each] < ends[each]}


def append_times(config: Config, positions: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return when the brokers received the record at an offset of each partition, in ms.

    The time is by their clock. Leaves out partitions without an answer within four seconds, and
    those whose records have their writers' timestamps, as in most topics. Records of open
    transactions count.
    """
    settings = client_config(
        config,
        "consumer",
        group_id=config.topic_names.fetch_group,
        isolation_level="read_uncommitted",
        enable_auto_commit=False,
        auto_offset_reset="error",
    )
    found: dict[Partition, int] = {}
    missing = set(positions)
    deadline_s = time.monotonic() + _ANSWER_S
    with closing(connect(Consumer, settings)) as consumer:
        consumer.assign([TopicPartition(*each, offset) for each, offset in positions.items()])
        while missing and time.monotonic() < deadline_s:
            message = consumer.poll(_POLL_S)
            if message is None or message.error() is not None:
                continue
            partition = (str(message.topic()), int(message.partition() or 0))
            kind, timestamp_ms = message.timestamp()
            if partition in missing and kind == TIMESTAMP_LOG_APPEND_TIME:
                found[partition] = timestamp_ms
            missing.discard(partition)
    return found

"""Brings a store up to its state topic: only what the store does not have yet is read."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from common.kafka.admin import Admin
from common.kafka.clients import HopelessError, Partition, TransactionFailedError
from common.kafka.data import PartitionReader
from streams.stores import RocksDBStore

STALL_TIMEOUT_S = 60
_REQUEST_TIMEOUT_S = 30
_CHUNK_RECORDS = 20_000

logger = structlog.get_logger()


def restore(
    store: RocksDBStore,
    partition: Partition,
    reader: PartitionReader,
    admin: Admin,
    progress: Callable[[int, int], None],
) -> int:
    """Apply the committed records of a state topic partition that are not in `store` yet.

    The end is the partition's high watermark at the call: the end that read_committed shows
    hides committed records behind a dead writer's open transaction. So fence that writer first.
    `progress(restored, total)` tells offsets. Returns the number of records read. Blocks as long
    as it takes; raises `TransactionFailedError` when the brokers bring nothing for 60 s.
    """
    end = admin.high_watermarks([partition])[partition]
    begin = reader.low_watermark(partition, _REQUEST_TIMEOUT_S)
    position = store.offset
    if position is not None and not begin <= position <= end:
        logger.warning("state wiped: its offset is outside the state topic", offset=position)
        store.wipe()
        position = None
    position = start = begin if position is None else position
    records = 0
    progress(0, end - start)
    if position >= end:
        return records
    reader.assign({partition: position})
    stalled_at = time.monotonic() + STALL_TIMEOUT_S
    while position < end:
        fetched = reader.fetch(_CHUNK_RECORDS, wait_s=0.2)
        for _, reason in fetched.errors:
            raise HopelessError(reason)
        changes: dict[bytes, bytes | None] = {}
        for batch in fetched.batches:
            changes.update(
                (k, v) for k, v in zip(batch.keys, batch.values, strict=True) if k is not None
            )
            records += len(batch)
        reached = max(
            position,
            *(batch.offsets[-1] + 1 for batch in fetched.batches),
            *(offset for _, offset in fetched.ends),
            0,
        )
        if reached > position:
            position = reached
            store.restore(changes, position)
            progress(position - start, end - start)
            stalled_at = time.monotonic() + STALL_TIMEOUT_S
        elif time.monotonic() > stalled_at:
            raise TransactionFailedError(f"restore stalls at offset {position} of {end}")
    reader.unassign([partition])
    return records
